"""Questions of an agent: what becomes of them in a turn, and how they look."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from hermes_trio.core.approvals import Decision, offered_choices
from hermes_trio.core.changes import ApprovalRequested, ApprovalResolved, CallStarted, Change, Ended
from hermes_trio.core.dialects.chat import APPROVAL_REQUEST, APPROVAL_RESPONDED, ChatOptions, ChatStream
from hermes_trio.core.dialects.responses import ResponsesCollector
from hermes_trio.core.dialects.runs import status_after
from hermes_trio.core.dialects.wire import pending_fields, request_fields, resolution_fields
from hermes_trio.core.events import (
    AnsweredBy,
    ApprovalAnswered,
    ApprovalRequest,
    Choice,
    Event,
    Text,
    ToolStarted,
)
from hermes_trio.core.outcome import Reason
from hermes_trio.core.records import Stamp
from hermes_trio.core.run_status import RunStateMachine, RunStatus
from hermes_trio.core.state import RunState
from hermes_trio.core.turn import Turn
from tests.core.sse import parse
from tests.support.run_stream_rules import HEADER
from tests.support.strategies import scripts
from tests.support.turn_rules import feed, played

WISH = ApprovalRequest(
    "q1", "c1", "rm -r build", "deletes files", ("recursive delete", "rm"), True, 60.0, 1.5
)
YES = ApprovalAnswered("q1", Choice.SESSION, AnsweredBy.CLIENT, 2.5)
REQUEST = ApprovalRequested(
    "q1", "", "rm -r build", "deletes files", ("recursive delete", "rm"), True, 60.0, 1.5
)
RESOLVED = ApprovalResolved("q1", "", Choice.SESSION, AnsweredBy.CLIENT, 2.5)


def test_a_question_is_asked_and_answered_once() -> None:
    assert feed(Turn(), [WISH, WISH, YES, YES]) == [REQUEST, RESOLVED]


def test_nothing_is_answered_that_was_not_asked() -> None:
    assert feed(Turn(), [YES, Text("a")])[0] != RESOLVED


def test_a_question_names_the_call_as_it_is_shown() -> None:
    again = [ToolStarted("c1", "t"), ToolStarted("c1", "t")]
    first, asked = feed(Turn(), [again[0], WISH])
    assert isinstance(first, CallStarted)
    assert isinstance(asked, ApprovalRequested)
    assert asked.call_id == first.call_id == "c1"


def test_the_end_denies_what_is_open() -> None:
    turn = Turn()
    asked = feed(turn, [WISH, ApprovalRequest("q2", "", "x")])
    closing = turn.cancel(Reason.STOP_REQUESTED, 9.0)
    assert [type(change) for change in closing] == [ApprovalResolved, ApprovalResolved, Ended]
    denied = [change for change in closing if isinstance(change, ApprovalResolved)]
    assert [change.approval_id for change in denied] == ["q1", "q2"]
    assert {(change.choice, change.by, change.at) for change in denied} == {
        (Choice.DENY, AnsweredBy.RUN_ENDED, 9.0)
    }
    assert len(asked) == 2


@pytest.mark.parametrize("permanent", [True, False])
def test_what_is_offered(permanent: bool) -> None:
    request = ApprovalRequested("q", "", "x", "", (), permanent, 1.0, 0.0)
    assert (Choice.ALWAYS in offered_choices(request)) is permanent
    assert {Choice.ONCE, Choice.SESSION, Choice.DENY} <= set(offered_choices(request))


def test_only_a_denial_stops_the_agent() -> None:
    decisions = {choice: Decision(choice, AnsweredBy.CLIENT).approved for choice in Choice}
    assert decisions == {Choice.ONCE: True, Choice.SESSION: True, Choice.ALWAYS: True, Choice.DENY: False}


def test_the_fields() -> None:
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


def test_a_question_stays_below_what_line_readers_take() -> None:
    patterns = tuple("\N{SNOWMAN}" * 10_000 for _ in range(100))
    huge = ApprovalRequested(
        "q", "c", "\N{SNOWMAN}" * 100_000, "\N{SNOWMAN}" * 100_000, patterns, True, 1.0, 0.0
    )
    assert len(json.dumps(request_fields(huge))) < 128 * 1024
    assert request_fields(ApprovalRequested("q", "", "x", "", (), True, 1.0, 0.0))["pattern_key"] is None


def test_in_chat_they_are_chunks_that_change_nothing() -> None:
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


def test_a_response_in_progress_tells_what_it_waits_for() -> None:
    collector = ResponsesCollector(HEADER)
    collector.take([REQUEST])
    assert collector.snapshot()["hermes"] == {"approval": request_fields(REQUEST), "approvals_pending": 1}
    collector.take([RESOLVED])
    assert "hermes" not in collector.snapshot()


class TestProgress:
    def test_from_one_question_to_the_next(self) -> None:
        progress, states = RunStateMachine(), []
        second = ApprovalRequested("q2", "", "y", "", (), True, 1.0, 3.0)
        progress.begin()
        told: list[Change] = [
            REQUEST,
            second,
            RESOLVED,
            ApprovalResolved("q2", "", Choice.DENY, AnsweredBy.TIMEOUT, 4),
        ]
        for change in told:
            progress.take(change)
            states.append(progress.status)
        assert states == [
            RunStatus(RunState.WAITING, (REQUEST,)),
            RunStatus(RunState.WAITING, (REQUEST, second)),
            RunStatus(RunState.WAITING, (second,)),
            RunStatus(RunState.RUNNING, ()),
        ]

    def test_stopping_lasts_until_the_end(self) -> None:
        progress = RunStateMachine()
        progress.stop()
        progress.begin()
        progress.take(REQUEST)
        progress.stop()
        assert progress.status == RunStatus(RunState.STOPPING, (REQUEST,))
        progress.take(RESOLVED)
        assert progress.status == RunStatus(RunState.STOPPING)

    @given(scripts)
    def test_every_script_ends_with_nobody_waiting(self, script: list[Event]) -> None:
        _, changes = played(script)
        for length in range(len(changes)):
            assert status_after(changes[:length]).state in {RunState.RUNNING, RunState.WAITING}
        assert status_after(changes) == RunStatus(RunState.FAILED)

    def test_nobody_waits(self) -> None:
        assert pending_fields(()) == {}
