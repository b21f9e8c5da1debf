"""Read a session stream, and check all its rules."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

from hermes_trio.core.messages import Message
from hermes_trio.core.records import RunHeader, Stamp
from tests.support.run_stream_rules import APPROVAL_REQUEST

Json = dict[str, Any]

HEADER = RunHeader(
    "default",
    Stamp("run_1", 1_700_000_000.5, "hermes-agent"),
    "sessions",
    "s-1",
    (Message("user", "Ahoj, kůň"),),
)
FRAME = re.compile(r"event: ([a-z._]+)\nid: ([1-9][0-9]*)\ndata: (\{.*\})")
_FLAGS = {"completed", "partial", "interrupted"}
_CALL = {"message_id", "tool_name", "toolCallId"}
_FIELDS = {
    "run.started": {"user_message"},
    "message.started": {"message"},
    "assistant.delta": {"message_id", "delta"},
    "tool.progress": {"message_id", "tool_name", "delta"},
    "tool.started": {*_CALL, "preview", "args"},
    "tool.output": {*_CALL, "delta"},
    "tool.completed": {*_CALL, "preview", "args", "duration", "error", "result", "status"},
    "tool.handed_over": {*_CALL, "arguments"},
    "approval.request": {"message_id", *APPROVAL_REQUEST},
    "approval.responded": {"message_id", "approval_id", "toolCallId", "choice", "resolved", "by"},
    "assistant.completed": {"message_id", "content", *_FLAGS},
    "run.completed": {"message_id", "messages", "usage", *_FLAGS},
    "error": {"message_id", "message", *_FLAGS},
    "done": {"status"},
}
_HEAD = {"session_id", "run_id", "seq", "ts"}
_ENDINGS = (["assistant.completed", "run.completed", "done"], ["error", "done"])


def event_of(block: str) -> Json:
    """Return the event of one frame with its name as a field.

    The frame has only a name, an id and data.
    """
    found = FRAME.fullmatch(block)
    assert found is not None, block
    event: Json = json.loads(found[3])
    assert event["seq"] == int(found[2])
    assert set(event) - {"reason"} == _HEAD | _FIELDS[found[1]]
    return {"event": found[1], **event}


def blocks_of(stream: bytes) -> list[str]:
    """Return the frames of a stream, all complete."""
    text = stream.decode("utf-8")
    assert text == "" or text.endswith("\n\n")
    return [block for block in text.split("\n\n")[:-1] if block != ": keepalive"]


def events_of(stream: bytes) -> list[Json]:
    """Return the events of a stream; their numbers have no gap, except one if the process died."""
    events = [event_of(block) for block in blocks_of(stream)]
    steps = [after["seq"] - before["seq"] for before, after in pairwise(events)]
    has_died = any(event.get("reason") == "process_died" for event in events)
    assert min(steps, default=1) == 1
    assert sum(step > 1 for step in steps) <= has_died
    return events


def kinds(events: list[Json]) -> list[str]:
    """Return the kinds of events."""
    return [event["event"] for event in events]


def check_whole(stream: bytes) -> list[Json]:
    """Return the events of a whole stream, and check them against all rules."""
    events = events_of(stream)
    assert events[0]["seq"] == 1
    names = kinds(events)
    assert names[:2] == ["run.started", "message.started"]
    end = next(end for end in _ENDINGS if names[-len(end) :] == end)
    assert not set(names[2 : -len(end)]) & {
        "run.started",
        "message.started",
        *_ENDINGS[0],
        *_ENDINGS[1],
    }
    assert len({event["run_id"] for event in events}) == 1
    times = [event["ts"] for event in events]
    assert times == sorted(times)
    assert len({event["message_id"] for event in events if "message_id" in event}) == 1
    _check_calls(events)
    return events


def _check_calls(events: list[Json]) -> None:
    """Check that each call starts once and ends once, and has output only in between."""
    running: dict[str, Json] = {}
    ever: set[str] = set()
    for event in events:
        match event["event"]:
            case "tool.started":
                assert event["toolCallId"] not in ever
                running[event["toolCallId"]] = event
                ever.add(event["toolCallId"])
            case "tool.output":
                assert event["tool_name"] == running[event["toolCallId"]]["tool_name"]
            case "tool.completed":
                start = running.pop(event["toolCallId"])
                assert all(event[name] == start[name] for name in ("tool_name", "preview", "args"))
                assert event["status"] in {"completed", "cancelled"}
            case "tool.progress":
                assert event["tool_name"] == "_thinking"
            case _:
                pass
    assert not running
