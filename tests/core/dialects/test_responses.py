"""The Responses dialect, streamed."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, get_args

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from hermes_trio.core.changes import (
    ApprovalRequested,
    ApprovalResolved,
    CallEnded,
    CallStarted,
    Change,
    Ended,
    ReasoningAdded,
    TextAdded,
    ToolOutputAdded,
)
from hermes_trio.core.dialects.responses import (
    APPROVAL_ITEMS,
    TOOL_ITEMS,
    ResponsesCollector,
    ResponsesStream,
    frames_after,
    response_item_ids,
    response_object,
)
from hermes_trio.core.dialects.responses_items import approval_item_id, item_id
from hermes_trio.core.dialects.wire import STATUS_LINE
from hermes_trio.core.events import AnsweredBy, Choice, Event, Text, ToolCompleted, ToolStarted
from hermes_trio.core.messages import CallItem, ClientCallItem, MessageItem, ReasoningItem
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.records import EndedRun
from hermes_trio.core.state import CallState
from hermes_trio.core.turn import Turn
from tests.support.responses_stream_rules import HEADER, TERMINAL, Json, Reader, events_of
from tests.support.strategies import cuts, last_words, scripts
from tests.support.turn_rules import feed, played

DONE = Ended(Outcome(Status.COMPLETED), 2.0)


def rendered(*changes: Change) -> list[Json]:
    stream = ResponsesStream(HEADER)
    return events_of(stream.opening() + stream.render(changes))


def brief(events: list[Json]) -> list[tuple[str, Any]]:
    """What matters of each event: its type, and the place of its item."""
    return [
        (event["type"].removeprefix("response."), event.get("output_index")) for event in events
    ]


def test_the_opening_is_two_whole_frames() -> None:
    opening = ResponsesStream(HEADER).opening()
    first, second, rest = opening.split(b"\n\n")
    assert first.startswith(
        b'event: response.created\ndata: {"type": "response.created", "response": {"id": "resp_1"'
    )
    assert second.startswith(b"event: response.in_progress\ndata: ")
    assert rest == b""


def test_text_has_the_full_grammar() -> None:
    events = rendered(TextAdded(0, 'a "ü"\n'), TextAdded(0, "b"), DONE)
    assert brief(events) == [
        ("created", None),
        ("in_progress", None),
        ("output_item.added", 0),
        ("content_part.added", 0),
        ("output_text.delta", 0),
        ("output_text.delta", 0),
        ("output_text.done", 0),
        ("content_part.done", 0),
        ("output_item.done", 0),
        ("completed", None),
    ]
    made = item_id("msg", "resp_1", 0)
    assert events[4] == {
        "type": "response.output_text.delta",
        "item_id": made,
        "output_index": 0,
        "content_index": 0,
        "delta": 'a "ü"\n',
        "logprobs": [],
        "sequence_number": 4,
    }
    assert events[8]["item"] == {
        "id": made,
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": 'a "ü"\nb', "annotations": [], "logprobs": []}],
    }


def test_reasoning_is_a_summary() -> None:
    events = rendered(ReasoningAdded(0, "hm"), DONE)
    assert brief(events)[2:-1] == [
        ("output_item.added", 0),
        ("reasoning_summary_part.added", 0),
        ("reasoning_summary_text.delta", 0),
        ("reasoning_summary_text.done", 0),
        ("reasoning_summary_part.done", 0),
        ("output_item.done", 0),
    ]
    assert events[4]["delta"] == "hm"
    assert events[7]["item"]["summary"] == [{"type": "summary_text", "text": "hm"}]


def test_a_call_is_done_when_its_tool_is_and_its_result_follows() -> None:
    events = rendered(
        TextAdded(0, "Let me see."),
        CallStarted(1, "c1", "terminal", {"command": "ls"}, 0.0),
        ToolOutputAdded(1, "c1", "half"),
        CallStarted(2, "c2", "terminal", {}, 0.0),
        CallEnded(2, "c2", "terminal", CallState.COMPLETED, "two", False, 1.0),
        CallEnded(1, "c1", "terminal", CallState.COMPLETED, "one", False, 1.0),
        TextAdded(3, "So."),
        DONE,
    )
    assert brief(events)[7:-7] == [
        ("output_item.done", 0),
        ("output_item.added", 1),
        ("function_call_arguments.delta", 1),
        ("function_call_arguments.done", 1),
        ("output_item.added", 2),
        ("function_call_arguments.delta", 2),
        ("function_call_arguments.done", 2),
        ("output_item.done", 2),
        ("output_item.added", 3),
        ("output_item.done", 3),
        ("output_item.done", 1),
        ("output_item.added", 4),
        ("output_item.done", 4),
    ]
    made = {
        "id": item_id("fc", "resp_1", 1),
        "type": "function_call",
        "name": "terminal",
        "call_id": "c1",
    }
    assert events[8]["item"] == {**made, "status": "in_progress", "arguments": ""}
    assert events[17]["item"] == {**made, "status": "completed", "arguments": '{"command": "ls"}'}
    result = {
        "id": item_id("fco", "resp_1", 1),
        "type": "function_call_output",
        "status": "completed",
        "call_id": "c1",
        "output": [{"type": "input_text", "text": "one"}],
    }
    assert events[18]["item"] == events[19]["item"] == result


def test_text_goes_on_after_the_result_of_a_call_that_ran_meanwhile() -> None:
    turn = Turn()
    script: list[Event] = [
        ToolStarted("c", "t"),
        Text("one "),
        ToolCompleted("c", "r"),
        Text("two"),
    ]
    changes = [*feed(turn, script), *turn.cancel(Reason.TIMEOUT)]
    reader = Reader().read(rendered(*changes))
    assert [item["type"] for item in reader.items] == [
        "function_call",
        "message",
        "function_call_output",
    ]
    assert reader.items[1]["content"][0]["text"] == "one two"
    assert reader.items[1]["status"] == "incomplete"


def test_what_was_cut_is_incomplete() -> None:
    turn, changes = played([Text("a"), ToolStarted("c", "t"), Text("b")])
    reader = Reader().read(rendered(*changes))
    assert [item["status"] for item in reader.items] == [
        "completed",
        "incomplete",
        "incomplete",
        "incomplete",
    ]
    assert reader.final["status"] == "incomplete"
    assert turn.text == "ab"


def test_a_log_that_lost_the_end_of_a_call_still_closes_it() -> None:
    reader = Reader().read(
        rendered(
            CallStarted(0, "c", "t", {}, 0.0), Ended(Outcome.from_cancellation(Reason.PROCESS_DIED))
        )
    )
    assert [item["status"] for item in reader.items] == ["incomplete", "incomplete"]


@pytest.mark.parametrize(
    ("outcome", "event", "status"),
    [
        (Outcome(Status.COMPLETED), "response.completed", "completed"),
        (Outcome.from_cancellation(Reason.TIMEOUT), "response.incomplete", "incomplete"),
        (Outcome.from_cancellation(Reason.SERVER_ERROR), "response.failed", "failed"),
        (Outcome.from_cancellation(Reason.STOP_REQUESTED), "response.incomplete", "cancelled"),
    ],
)
def test_every_outcome_has_one_terminal_event(outcome: Outcome, event: str, status: str) -> None:
    last = rendered(TextAdded(0, "a"), Ended(outcome, 1.0))[-1]
    assert (last["type"], last["response"]["status"]) == (event, status)


def test_results_are_whole_however_long() -> None:
    huge = "x" * 2_000_000
    ended = CallEnded(0, "c", "t", CallState.COMPLETED, huge, False, 0.0)
    last = rendered(CallStarted(0, "c", "t", {"a": huge}, 0.0), ended, DONE)[-1]
    call, result = last["response"]["output"]
    assert json.loads(call["arguments"]) == {"a": huge}
    assert result["output"][0]["text"] == huge


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
    stream = frames_after(HEADER, changes)
    reader = Reader().read(events_of(stream))
    assert reader.final["status"] == str(turn.outcome.status)
    texts = [item["content"][0]["text"] for item in reader.items if item["type"] == "message"]
    assert texts == [item.text for item in turn.items if isinstance(item, MessageItem)]
    thoughts = [item["summary"][0]["text"] for item in reader.items if item["type"] == "reasoning"]
    assert thoughts == [item.text for item in turn.items if isinstance(item, ReasoningItem)]
    check_calls(turn, reader.items)
    assert b"_secret" not in stream
    assert b"_thinking" not in stream
    check_batch(changes, reader.final)


def check_calls(turn: Turn, items: list[Json]) -> None:
    calls = [item for item in turn.items if isinstance(item, CallItem)]
    handed = [item for item in turn.items if isinstance(item, ClientCallItem)]
    made = [item for item in items if item["type"] == "function_call"]
    assert len(made) == len(calls) + len(handed)
    for call_item in handed:
        (item,) = [item for item in made if item["call_id"] == call_item.call_id]
        assert (item["name"], item["arguments"]) == (call_item.name, call_item.arguments)
        assert item["status"] == "completed"
        made.remove(item)
    shown = made
    assert [item["call_id"] for item in shown] == [call.call_id for call in calls]
    assert [json.loads(item["arguments"]) for item in shown] == [call.args for call in calls]
    results = {item["call_id"]: item for item in items if item["type"] == "function_call_output"}
    assert len(results) == len(calls)
    for call in calls:
        assert results[call.call_id]["output"] == [{"type": "input_text", "text": call.result}]
        is_whole = call.state is CallState.COMPLETED
        assert results[call.call_id]["status"] == ("completed" if is_whole else "incomplete")


def check_batch(changes: list[Change], final: Json) -> None:
    """A batch reply is the last response of the stream, but for the form of the results."""
    collector = ResponsesCollector(HEADER)
    collector.take(changes)
    assert (
        collector.reply().body
        == collector.snapshot()
        == {**final, "output": plain(final["output"])}
    )


def plain(items: list[Json]) -> list[Json]:
    return [
        {**item, "output": item["output"][0]["text"]}
        if item["type"] == "function_call_output"
        else item
        for item in items
    ]


@given(scripts, last_words)
@settings(max_examples=60)
def test_a_stream_can_be_picked_up_after_every_event(script: list[Event], last: Event) -> None:
    changes = feed(Turn(), [*script, last])
    whole = frames_after(HEADER, changes)
    frames = whole.split(b"\n\n")[:-1]
    for number in range(-1, len(frames) - 1):
        read = b"".join(frame + b"\n\n" for frame in frames[: number + 1])
        assert read + frames_after(HEADER, changes, number) == whole
    assert frames_after(HEADER, changes, len(frames)) == b"data: [DONE]\n\n"


@given(scripts, st.integers(-1, 60), st.integers(0, 25))
def test_rendering_in_pieces_or_at_once_is_the_same(
    script: list[Event], after: int, cut: int
) -> None:
    _, changes = played(script)
    stream = ResponsesStream(HEADER, after)
    pieces = stream.opening() + stream.render(changes[:cut])
    assert pieces + b"".join(stream.render([change]) for change in changes[cut:]) == frames_after(
        HEADER, changes, after
    )


@given(scripts)
def test_a_run_in_progress_has_no_terminal_event(script: list[Event]) -> None:
    stream = frames_after(HEADER, feed(Turn(), script))
    assert not any(f"event: {kind}\n".encode() in stream for kind in TERMINAL)
    assert b"[DONE]" not in stream


@cache
def models() -> dict[str, TypeAdapter[Any]]:
    """The SDK's class for each type of event."""
    classes = get_args(get_args(ResponseStreamEvent)[0])
    return {
        get_args(kind.model_fields["type"].annotation)[0]: TypeAdapter(kind) for kind in classes
    }


@given(scripts, last_words)
@settings(max_examples=60, deadline=None)  # the SDK builds its classes when they are first used
def test_the_sdk_takes_every_event_without_a_change(script: list[Event], last: Event) -> None:
    for event in events_of(frames_after(HEADER, feed(Turn(), [*script, last]))):
        value = models()[event["type"]].validate_python(event, strict=True)
        assert value.sequence_number == event["sequence_number"]


@given(scripts, cuts)
@settings(max_examples=30, deadline=None)
def test_the_sdk_takes_the_events_of_cut_runs(script: list[Event], reason: Reason) -> None:
    for event in events_of(frames_after(HEADER, played(script, reason)[1])):
        models()[event["type"]].validate_python(event, strict=True)


# Tool calls that the server runs, as one item each, and hidden.

MCP = evolve(HEADER, request={TOOL_ITEMS: "mcp_call"})
HIDDEN = evolve(HEADER, request={TOOL_ITEMS: "hidden"})


def test_a_server_call_is_one_item_with_its_standard_events() -> None:
    changes: list[Change] = [
        TextAdded(0, "Let me see."),
        CallStarted(1, "c1", "terminal", {"command": "ls"}, 0.0),
        CallEnded(1, "c1", "terminal", CallState.COMPLETED, "one", False, 1.0),
        CallStarted(2, "c2", "terminal", {}, 0.0),
        CallEnded(2, "c2", "terminal", CallState.COMPLETED, "no such file", True, 1.0),
        CallStarted(3, "c3", "terminal", {}, 0.0),
        CallEnded(3, "c3", "terminal", CallState.CANCELLED, "half", True, 1.0),
        DONE,
    ]
    events = events_of(frames_after(MCP, changes))
    call = [
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
    ]
    assert [name for name, _ in brief(events)[8:-1]] == [
        *call, "mcp_call.completed", "output_item.done",
        *call, "mcp_call.failed", "output_item.done",
        *call, "mcp_call.failed", "output_item.done",
    ]  # fmt: skip
    _, first, second, third = events[-1]["response"]["output"]
    assert first == {
        "id": item_id("mcp", "resp_1", 1),
        "type": "mcp_call",
        "status": "completed",
        "server_label": "hermes",
        "name": "terminal",
        "arguments": '{"command": "ls"}',
        "output": "one",
        "error": None,
        "approval_request_id": None,
    }
    error = {
        "type": "mcp_tool_execution_error",
        "content": [{"type": "text", "text": "no such file"}],
    }
    assert (second["status"], second["output"], second["error"]) == (
        "failed",
        "no such file",
        error,
    )
    assert (third["status"], third["output"]) == ("incomplete", "half")


@given(scripts, cuts)
def test_server_calls_are_the_same_in_stream_and_record(
    script: list[Event], reason: Reason
) -> None:
    turn, changes = played(script, reason)
    final = events_of(frames_after(MCP, changes))[-1]["response"]
    stored = response_object(MCP, turn.items, turn.outcome)
    assert stored["output"] == final["output"]
    calls = [item for item in turn.items if isinstance(item, CallItem)]
    shown = [item for item in final["output"] if item["type"] == "mcp_call"]
    assert [(call.name, call.result) for call in calls] == [
        (item["name"], item["output"]) for item in shown
    ]
    assert all(item["status"] != "in_progress" for item in final["output"])


@given(scripts, last_words)
@settings(max_examples=60, deadline=None)  # the SDK builds its classes when they are first used
def test_the_sdk_takes_every_event_of_server_calls(script: list[Event], last: Event) -> None:
    for event in events_of(frames_after(MCP, feed(Turn(), [*script, last]))):
        models()[event["type"]].validate_python(event, strict=True)


@given(scripts, last_words)
@settings(max_examples=60)
def test_a_stream_with_server_calls_can_be_picked_up_after_every_event(
    script: list[Event], last: Event
) -> None:
    changes = feed(Turn(), [*script, last])
    whole = frames_after(MCP, changes)
    frames = whole.split(b"\n\n")[:-1]
    for number in range(-1, len(frames) - 1):
        read = b"".join(frame + b"\n\n" for frame in frames[: number + 1])
        assert read + frames_after(MCP, changes, number) == whole


@given(scripts, cuts)
def test_hidden_calls_leave_the_rest_as_it_is(script: list[Event], reason: Reason) -> None:
    turn, changes = played(script, reason)
    output = events_of(frames_after(HIDDEN, changes))[-1]["response"]["output"]
    kinds = {MessageItem: "message", ReasoningItem: "reasoning", ClientCallItem: "function_call"}
    assert [item["type"] for item in output] == [
        kinds[type(item)] for item in turn.items if not isinstance(item, CallItem)
    ]
    assert response_object(HIDDEN, turn.items, turn.outcome)["output"] == output


# Approval requests as items.

ITEMS = evolve(HEADER, request={TOOL_ITEMS: "mcp_call", APPROVAL_ITEMS: True})


@given(scripts, cuts, st.sampled_from(["mcp_call", "function_call", "hidden"]))
def test_approval_items_are_the_same_in_stream_and_record(
    script: list[Event], reason: Reason, form: str
) -> None:
    turn = Turn()
    changes = feed(turn, script)
    more = turn.suspend(5.0)[0] if turn.is_waiting else turn.cancel(reason, 5.0)
    header = evolve(HEADER, request={TOOL_ITEMS: form, APPROVAL_ITEMS: True})
    events = events_of(frames_after(header, [*changes, *more]))
    final = Reader().read(events).final
    stored = response_object(header, turn.items, turn.outcome)["output"]
    shown = [item for item in final["output"] if item["type"] != "function_call_output"]
    assert shown == [item for item in stored if item["type"] != "function_call_output"]
    ended = EndedRun(header, turn.items, turn.outcome, 5.0)
    assert sorted(response_item_ids(ended)) == sorted(item["id"] for item in stored)
    requests = [item for item in stored if item["type"] == "mcp_approval_request"]
    deferred = [each for each in turn.items if isinstance(each, CallItem) and each.is_deferred]
    assert [item["id"] for item in requests] == [
        approval_item_id(call.approval_id) for call in deferred
    ]


def test_a_log_that_lost_its_tail_shows_the_calls_that_were_held_back() -> None:
    changes: list[Change] = [
        CallStarted(0, "c", "terminal", {}, 0.0),
        Ended(Outcome(Status.INCOMPLETE), 1.0),
    ]
    final = events_of(frames_after(ITEMS, changes))[-1]["response"]
    assert [(item["type"], item["status"]) for item in final["output"]] == [
        ("mcp_call", "incomplete")
    ]


def test_a_client_with_a_status_line_is_told_of_approvals() -> None:
    changes: list[Change] = [
        TextAdded(0, "Let me."),
        ApprovalRequested("q", "", "rm -r x", "", (), True, 60.0, 1.0),
        ApprovalResolved("q", "", Choice.ONCE, AnsweredBy.CLIENT, 2.0),
        DONE,
    ]
    events = events_of(frames_after(evolve(HEADER, request={STATUS_LINE: True}), changes))
    Reader().read(events)
    asked, answered = [event for event in events if "event" in event]
    assert asked["event"]["data"] == {
        "description": "Waiting for an approval: rm -r x",
        "done": False,
    }
    assert asked["response"]["hermes"]["approvals_pending"] == 1
    assert answered["event"]["data"] == {"description": "Approval: once", "done": True}
    assert "hermes" not in answered["response"]
    assert not [event for event in events_of(frames_after(HEADER, changes)) if "event" in event]
