"""Frames, and the fields of approval events."""

from __future__ import annotations

import json

from hermes_trio.core.changes import ApprovalRequested, ApprovalResolved
from hermes_trio.core.dialects.chat import (
    APPROVAL_REQUEST,
    APPROVAL_RESPONDED,
    ChatOptions,
    ChatStream,
)
from hermes_trio.core.dialects.responses import ResponsesCollector
from hermes_trio.core.dialects.wire import (
    data_frame,
    encode,
    named_frame,
    pending_fields,
    request_fields,
    resolution_fields,
)
from hermes_trio.core.events import (
    AnsweredBy,
    Choice,
)
from hermes_trio.core.records import Stamp
from tests.support.dialect_frames import parse
from tests.support.run_stream_rules import HEADER

REQUEST = ApprovalRequested(
    "q1", "", "rm -r build", "deletes files", ("recursive delete", "rm"), True, 60.0, 1.5
)


RESOLVED = ApprovalResolved("q1", "", Choice.SESSION, AnsweredBy.CLIENT, 2.5)


def test_frames_are_one_piece_of_ascii() -> None:
    assert data_frame(encode({"a": "ü"})) == b'data: {"a": "\\u00fc"}\n\n'
    assert named_frame("x", "{}") == b"event: x\ndata: {}\n\n"


def test_approval_fields() -> None:
    assert request_fields(REQUEST) == {
        "approval_id": "q1",
        "toolCallId": None,
        "command": "rm -r build",
        "description": "deletes files",
        "pattern_key": "recursive delete",
        "pattern_keys": ["recursive delete", "rm"],
        "allow_permanent": True,
        "choices": ["once", "session", "always", "deny"],
        "timeout": 60.0,
    }
    assert resolution_fields(RESOLVED) == {
        "approval_id": "q1",
        "toolCallId": None,
        "choice": "session",
        "resolved": 1,
        "by": "client",
    }


def test_a_request_fits_the_lines_that_clients_read() -> None:
    patterns = tuple("\N{SNOWMAN}" * 10_000 for _ in range(100))
    huge = ApprovalRequested(
        "q", "c", "\N{SNOWMAN}" * 100_000, "\N{SNOWMAN}" * 100_000, patterns, True, 1.0, 0.0
    )
    assert len(json.dumps(request_fields(huge))) < 128 * 1024
    assert (
        request_fields(ApprovalRequested("q", "", "x", "", (), True, 1.0, 0.0))["pattern_key"]
        is None
    )


def test_in_chat_approvals_are_chunks_with_an_empty_delta() -> None:
    stream = ChatStream(Stamp("r", 1.0, "m"), ChatOptions(status_line=True))
    asked, answered = parse(stream.render([REQUEST, RESOLVED]))
    assert (asked.name, answered.name) == (APPROVAL_REQUEST, APPROVAL_RESPONDED)
    for frame in (asked, answered):
        assert frame.data["choices"] == [{"index": 0, "delta": {}, "finish_reason": None}]
        assert "error" not in frame.data
    assert asked.data["approval"] == request_fields(REQUEST)
    assert answered.data["approval"] == resolution_fields(RESOLVED)
    assert asked.data["event"]["data"] == {
        "description": "Waiting for an approval: rm -r build",
        "done": False,
    }
    assert answered.data["event"]["data"]["done"] is True


def test_a_response_in_progress_shows_its_open_requests() -> None:
    collector = ResponsesCollector(HEADER)
    collector.take([REQUEST])
    assert collector.snapshot()["hermes"] == {
        "approval": request_fields(REQUEST),
        "approvals_pending": 1,
    }
    collector.take([RESOLVED])
    assert "hermes" not in collector.snapshot()


def test_no_open_request_has_no_fields() -> None:
    assert pending_fields(()) == {}
