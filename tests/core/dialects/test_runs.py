"""The Runs dialect: its stream and its object."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.core.changes import (
    CallEnded,
    CallStarted,
    Change,
    Ended,
    ReasoningAdded,
    TextAdded,
    ToolOutputAdded,
)
from hermes_trio.core.dialects.runs import (
    RunsStream,
    ends_in_states,
    event_name,
    frames_after,
    run_object,
)
from hermes_trio.core.events import Event, Result, Verdict
from hermes_trio.core.messages import Message, MessageItem, Usage
from hermes_trio.core.outcome import Failure, Outcome, Reason, Status
from hermes_trio.core.records import ALL_ENDS, EndedRun, LiveRun
from hermes_trio.core.run_status import RunStatus
from hermes_trio.core.state import CallState, RunState
from hermes_trio.core.turn import Turn
from tests.support.run_stream_rules import (
    CLOSED,
    HEADER,
    TERMINAL,
    Json,
    blocks_of,
    check_whole,
    events_of,
)
from tests.support.strategies import cuts, last_words, scripts
from tests.support.turn_rules import feed, played

DONE = Ended(Outcome(Status.COMPLETED), 2.0)
BEGAN = HEADER.stamp.created_at


def rendered(*changes: Change) -> list[Json]:
    return check_whole(frames_after(HEADER, changes))


def bare(event: Json) -> Json:
    """What is not in every event."""
    return {key: value for key, value in event.items() if key not in {"run_id", "timestamp", "seq"}}


def test_the_opening_is_one_whole_frame() -> None:
    assert RunsStream(HEADER).opening() == (
        b'id: 0\ndata: {"event": "run.started", "run_id": "run_1", "timestamp": 1700000000.5, "seq": 0}\n\n'
    )


def test_every_kind_of_event() -> None:
    events = rendered(
        ReasoningAdded(0, "hm"),
        TextAdded(1, 'a "ü"\n'),
        CallStarted(2, "c1", "terminal", {"command": "ls"}, 0.25),
        ToolOutputAdded(2, "c1", "half"),
        CallEnded(2, "c1", "terminal", CallState.COMPLETED, "whole", False, 1.23456),
        TextAdded(3, "b"),
        TextAdded(3, "c"),
        Ended(Outcome(Status.COMPLETED, usage=Usage(3, 4)), 2.0),
    )
    assert [bare(event) for event in events[:-1]] == [
        {"event": "run.started"},
        {"event": "reasoning.delta", "delta": "hm"},
        {"event": "message.delta", "delta": 'a "ü"\n'},
        {
            "event": "tool.started",
            "tool": "terminal",
            "preview": "ls",
            "toolCallId": "c1",
            "args": {"command": "ls"},
        },
        {"event": "tool.output", "toolCallId": "c1", "delta": "half"},
        {
            "event": "tool.completed",
            "tool": "terminal",
            "toolCallId": "c1",
            "duration": 1.235,
            "error": False,
            "result": "whole",
            "status": "completed",
        },
        {"event": "message.delta", "delta": "b"},
        {"event": "message.delta", "delta": "c"},
    ]
    assert (events[-1]["event"], events[-1]["output"]) == ("run.completed", "bc")
    assert events[-1]["usage"]["total_tokens"] == 7
    assert "incomplete" not in events[-1]


def test_times_are_those_of_the_changes_or_the_latest_known() -> None:
    ended = CallEnded(1, "c", "t", CallState.COMPLETED, "", False, 0.5)
    events = rendered(
        TextAdded(0, "a"),
        CallStarted(1, "c", "t", {}, 1.25),
        TextAdded(2, "b"),
        ended,
        TextAdded(2, "c"),
        DONE,
    )
    assert [event["timestamp"] - BEGAN for event in events] == [0, 0, 1.25, 1.25, 1.75, 1.75, 2]


def test_the_end_of_a_call_whose_start_is_not_known() -> None:
    """As in a status that reads only the latest changes."""
    latest = [CallEnded(1, "c", "t", CallState.COMPLETED, "", False, 0.5)]
    shown = run_object(LiveRun(HEADER), latest)
    assert (shown["updated_at"], shown["last_event"]) == (BEGAN + 0.5, "tool.completed")


def test_a_call_without_anything_to_preview() -> None:
    [_, started, *_] = rendered(CallStarted(0, "c", "t", {}, 0.0), _cancelled("x"), DONE)
    assert started["preview"] is None


def test_a_call_that_was_cut() -> None:
    _, changes = played([])
    [_, _, over, _] = rendered(CallStarted(0, "c", "t", {}, 0.0), _cancelled("so far"), *changes)
    assert (over["status"], over["error"], over["result"]) == ("cancelled", True, "so far")


def _cancelled(result: str) -> CallEnded:
    return CallEnded(0, "c", "t", CallState.CANCELLED, result, True, 0.0)


def test_long_values_are_shortened_so_that_every_line_can_be_read() -> None:
    huge = "\U0001f600" * 100_000
    stream = frames_after(
        HEADER,
        [
            CallStarted(0, "c", "t", {"command": huge}, 0.0),
            ToolOutputAdded(0, "c", huge),
            _cancelled(huge),
            DONE,
        ],
    )
    check_whole(stream)
    assert max(map(len, stream.split(b"\n"))) < 64 * 1024


OUTCOMES = [
    (Outcome(Status.COMPLETED), "completed", {}),
    (
        Outcome.from_result(Result("a", Verdict.TRUNCATED), is_empty=False),
        "completed",
        {"incomplete": True, "reason": "max_output_tokens"},
    ),
    (
        Outcome.from_result(Result("a", Verdict.INCOMPLETE), is_empty=False),
        "completed",
        {"incomplete": True, "reason": "agent_incomplete"},
    ),
    (
        Outcome.from_result(Result("a", Verdict.INTERRUPTED), is_empty=False),
        "cancelled",
        {"reason": "stop_requested"},
    ),
    (Outcome.from_cancellation(Reason.STOP_REQUESTED), "cancelled", {"reason": "stop_requested"}),
    (
        Outcome.from_result(Result("", Verdict.FAILED, "no luck"), is_empty=False),
        "failed",
        {"error": "no luck", "reason": "agent_error"},
    ),
    (
        Outcome.from_cancellation(Reason.TIMEOUT),
        "failed",
        {"error": "The run reached its time limit.", "reason": "timeout"},
    ),
    (
        Outcome.from_cancellation(Reason.PROCESS_DIED),
        "failed",
        {"error": "The server process ended during the run.", "reason": "process_died"},
    ),
    (
        Outcome(Status.FAILED, Reason.SERVER_ERROR, Failure("", "x")),
        "failed",
        {"error": "The run failed.", "reason": "server_error"},
    ),
]


@pytest.mark.parametrize(("outcome", "status", "why"), OUTCOMES)
def test_every_outcome_is_one_of_three_on_the_wire_and_in_the_object(
    outcome: Outcome, status: str, why: Json
) -> None:
    last = bare(rendered(TextAdded(0, "a"), TextAdded(2, "b"), Ended(outcome, 1.0))[-1])
    output = {"output": "b" if outcome.status is Status.COMPLETED else "ab"}
    assert last.pop("event") == f"run.{status}"
    if status == "completed":
        assert last.pop("usage")["total_tokens"] == outcome.usage.total_tokens
        why = {**why, **output}
    assert last == why
    shown = run_object(EndedRun(HEADER, (MessageItem("a"), MessageItem("b")), outcome, 1.0))
    assert (shown["status"], shown["last_event"]) == (status, f"run.{status}")
    assert {**output, **why}.items() <= shown.items()


def test_the_object_of_a_run_that_has_ended() -> None:
    messages = (Message("user", "Hello\nthere"),)
    header = evolve(
        HEADER, messages=messages, request={"metadata": {"a": "b"}}, client="curl/8.5.0"
    )
    outcome = Outcome(Status.COMPLETED, usage=Usage(1, 2), session_id="moved")
    shown = run_object(EndedRun(header, (MessageItem("Hi"),), outcome, 1.5))
    usage = shown.pop("usage")
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (1, 2, 3)
    assert shown == {
        "object": "hermes.run",
        "run_id": "run_1",
        "kind": "runs",
        "status": "completed",
        "created_at": BEGAN,
        "updated_at": BEGAN + 1.5,
        "session_id": "moved",
        "model": "hermes-agent",
        "last_event": "run.completed",
        "metadata": {"a": "b"},
        "client": "curl/8.5.0",
        "preview": "Hello there",
        "output": "Hi",
    }


@pytest.mark.parametrize(
    "state", [RunState.QUEUED, RunState.RUNNING, RunState.WAITING, RunState.STOPPING]
)
def test_the_object_of_a_run_in_progress(state: RunState) -> None:
    changes: list[Change] = [TextAdded(0, "a"), CallStarted(1, "c", "t", {}, 0.5)]
    shown = run_object(LiveRun(HEADER), changes, RunStatus(state))
    assert shown == {
        "object": "hermes.run",
        "run_id": "run_1",
        "kind": "runs",
        "status": str(state),
        "created_at": BEGAN,
        "updated_at": BEGAN + 0.5,
        "session_id": "s-1",
        "model": "hermes-agent",
        "last_event": "tool.started",
        "metadata": {},
        "client": None,
        "preview": None,
    }
    assert run_object(LiveRun(HEADER))["last_event"] == "run.started"


@given(scripts, cuts)
@settings(max_examples=60)
def test_a_run_cut_after_every_prefix_keeps_the_promises(
    script: list[Event], reason: Reason
) -> None:
    for length in range(len(script) + 1):
        turn, changes = played(script[:length], reason)
        check(turn, changes)


@given(scripts, last_words)
def test_a_run_that_ended_by_itself_keeps_the_promises(script: list[Event], last: Event) -> None:
    turn = Turn()
    check(turn, feed(turn, [*script, last]))


def check(turn: Turn, changes: list[Change]) -> None:
    """One event for each change, text neither lost nor doubled, and the object agrees with the last event."""
    stream = frames_after(HEADER, changes)
    events = check_whole(stream)
    assert [event["event"] for event in events] == ["run.started", *map(event_name, changes)]
    said = "".join(event["delta"] for event in events if event["event"] == "message.delta")
    assert said == turn.text
    assert b"_secret" not in stream
    end = changes[-1]
    assert isinstance(end, Ended)
    shown = run_object(EndedRun(HEADER, turn.items, turn.outcome, end.at))
    last = events[-1]
    assert f"run.{shown['status']}" == shown["last_event"] == last["event"]
    told = {key: value for key, value in last.items() if key not in {"event", "timestamp", "seq"}}
    assert told.items() <= shown.items()
    assert shown["output"] in turn.text


@given(scripts, last_words)
@settings(max_examples=60)
def test_a_stream_can_be_picked_up_after_every_event(script: list[Event], last: Event) -> None:
    changes = feed(Turn(), [*script, last])
    whole = frames_after(HEADER, changes)
    frames = [f"{block}\n\n".encode() for block in blocks_of(whole)]
    for number in range(-1, len(frames) - 1):
        assert b"".join(frames[: number + 1]) + frames_after(HEADER, changes, number) == whole


@given(scripts, cuts, st.integers(1, 9))
def test_a_client_that_is_ahead_of_the_log_is_told_the_end(
    script: list[Event], reason: Reason, ahead: int
) -> None:
    """It had events that died with a process; the rest of the log was written by another."""
    _, changes = played(script, reason)
    frames = blocks_of(frames_after(HEADER, changes))
    last = len(frames) - 2
    assert blocks_of(frames_after(HEADER, changes, last + ahead)) == frames[-2:]
    assert blocks_of(frames_after(HEADER, changes, last)) == [CLOSED]


@given(scripts, st.integers(-1, 60), st.integers(0, 25))
def test_rendering_in_pieces_or_at_once_is_the_same(
    script: list[Event], after: int, cut: int
) -> None:
    _, changes = played(script)
    stream = RunsStream(HEADER, after)
    pieces = stream.opening() + stream.render(changes[:cut])
    assert pieces + b"".join(stream.render([change]) for change in changes[cut:]) == frames_after(
        HEADER, changes, after
    )


@given(scripts)
def test_a_run_in_progress_has_no_terminal_event(script: list[Event]) -> None:
    stream = frames_after(HEADER, feed(Turn(), script))
    assert not any(event["event"] in TERMINAL for event in events_of(stream))
    assert CLOSED not in blocks_of(stream)


@given(scripts)
def test_the_object_names_the_last_event_and_its_time(script: list[Event]) -> None:
    changes = feed(Turn(), script)
    last = events_of(frames_after(HEADER, changes))[-1]
    shown = run_object(LiveRun(HEADER), changes)
    assert (shown["last_event"], shown["updated_at"]) == (last["event"], last["timestamp"])


def test_every_end_has_one_word() -> None:
    words = ["completed", "failed", "cancelled"]
    ends = [ends_in_states([word]) for word in words]
    assert frozenset().union(*ends) == ALL_ENDS
    assert sum(map(len, ends)) == len(ALL_ENDS)
    assert (Status.INCOMPLETE, Reason.MAX_OUTPUT_TOKENS) in ends_in_states(["completed"])
