"""The view of a run: every event counts once, in any order, and nothing stays open at the end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.client.events import (
    ApprovalClosed,
    ApprovalPrompt,
    Body,
    InvalidEvent,
    ReasoningDelta,
    RunCancelled,
    RunCompleted,
    RunFailed,
    StreamEvent,
    StreamStarted,
    TextDelta,
    ToolCallEnded,
    ToolCallHandedOver,
    ToolCallOutput,
    ToolCallStarted,
    UnknownEvent,
    read_event,
)
from hermes_trio.client.view import (
    EMPTY_VIEW,
    MAX_OUTPUT_CHARS,
    ApprovalBlock,
    CardState,
    ReasoningBlock,
    TextBlock,
    ToolCard,
    apply_event,
    exit_code,
    replay_events,
)
from hermes_trio.core.dialects.runs import frames_after
from hermes_trio.core.events import Choice
from tests.client.runs import HEADER, changes_of, data_of
from tests.support.strategies import cuts, scripts

ids = st.sampled_from(["a", "b", ""])
texts = st.text(max_size=5)
endings = st.one_of(
    st.builds(RunCompleted, texts), st.builds(RunFailed, texts), st.builds(RunCancelled, texts)
)
bodies: st.SearchStrategy[Body] = st.one_of(
    st.just(StreamStarted()),
    st.builds(TextDelta, texts),
    st.builds(ReasoningDelta, texts),
    st.builds(ToolCallStarted, ids, texts, texts),
    st.builds(ToolCallOutput, ids, texts),
    st.builds(ToolCallEnded, ids, texts, texts, st.floats(0, 9), st.booleans(), st.booleans()),
    st.builds(ToolCallHandedOver, ids, texts, texts),
    st.builds(ApprovalPrompt, ids, texts),
    st.builds(ApprovalClosed, ids, st.sampled_from(["once", "deny"]), texts),
    st.builds(UnknownEvent, texts),
    endings,
)
events = st.lists(
    st.builds(StreamEvent, st.integers(-1, 40), st.floats(0, 100), bodies), max_size=30
).map(tuple)


def numbered(*said: Body) -> tuple[StreamEvent, ...]:
    return tuple(StreamEvent(number, float(number), body) for number, body in enumerate(said))


@given(events)
def test_every_event_counts_at_most_once(heard: tuple[StreamEvent, ...]) -> None:
    view, counted = EMPTY_VIEW, []
    for event in heard:
        after = apply_event(view, event, 50.0)
        if after.seq > view.seq:
            counted.append(event)
        else:
            assert after == view
        assert apply_event(after, event, 50.0) == after
        view = after
    numbers = [event.seq for event in counted]
    assert numbers == sorted(set(numbers))
    assert view.text == "".join(
        event.body.text for event in counted if isinstance(event.body, TextDelta)
    )
    cards = [block.call_id for block in view.blocks if isinstance(block, ToolCard)]
    assert len(cards) == len(set(cards))


@given(events, endings)
def test_nothing_is_open_at_the_end_and_nothing_follows_it(
    heard: tuple[StreamEvent, ...], end: Body
) -> None:
    view = apply_event(replay_events(heard), StreamEvent(99, 0.0, end), 0.0)
    assert view.is_over
    assert view.questions == ()
    assert all(
        block.state != CardState.RUNNING for block in view.blocks if isinstance(block, ToolCard)
    )
    assert apply_event(view, StreamEvent(100, 0.0, TextDelta("late")), 0.0) == view


@given(scripts, cuts, st.data())
def test_a_stream_resumed_anywhere_leads_to_the_same_view(
    script: list[Any], reason: Any, data: st.DataObject
) -> None:
    changes = changes_of(script, reason)
    whole = [read_event(each) for each in data_of(frames_after(HEADER, changes))]
    broken: list[StreamEvent] = []
    reached = -1
    while reached < len(whole) - 1:
        # Some of what was known comes again, as after a client that lost its place.
        begin = data.draw(st.integers(-1, reached))
        end = data.draw(st.integers(reached + 1, len(whole) - 1))
        broken += [read_event(each) for each in data_of(frames_after(HEADER, changes, begin))][
            : end - begin
        ]
        reached = end
    unbroken = replay_events(tuple(whole))
    assert replay_events(tuple(broken)) == unbroken
    assert unbroken.is_over
    assert [event.seq for event in whole] == [*range(len(whole))]
    assert not any(isinstance(event.body, UnknownEvent) for event in whole)


def test_adjacent_text_of_one_kind_is_merged() -> None:
    view = replay_events(
        numbered(
            ReasoningDelta("a"),
            ReasoningDelta("b"),
            TextDelta(""),
            TextDelta("c"),
            TextDelta("d"),
            ReasoningDelta("e"),
        )
    )
    assert view.blocks == (ReasoningBlock("ab"), TextBlock("cd"), ReasoningBlock("e"))
    assert view.text == "cd"


def test_a_card_from_start_to_end() -> None:
    on_started = numbered(
        ToolCallStarted("a", "terminal", "date"),
        ToolCallOutput("a", "x" * 5000),
        ToolCallOutput("a", "y"),
    )
    (card,) = replay_events(on_started).blocks
    assert isinstance(card, ToolCard)
    assert (card.state, len(card.printed), card.printed[-2:]) == (
        CardState.RUNNING,
        MAX_OUTPUT_CHARS,
        "xy",
    )
    over = apply_event(
        replay_events(on_started),
        StreamEvent(9, 9.0, ToolCallEnded("a", "terminal", "done", 1.5)),
        0.0,
    )
    (card,) = over.blocks
    assert isinstance(card, ToolCard)
    assert (card.state, card.result, card.seconds, card.preview) == (
        CardState.DONE,
        "done",
        1.5,
        "date",
    )


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (ToolCallEnded("a", "t", is_error=True), CardState.FAILED),
        (ToolCallEnded("a", "t", is_error=True, is_cancelled=True), CardState.CANCELLED),
        (ToolCallHandedOver("a", "t", "{}"), CardState.HANDED_OVER),
    ],
)
def test_other_ends_of_a_card(body: Body, state: CardState) -> None:
    (card,) = replay_events(numbered(body)).blocks
    assert isinstance(card, ToolCard)
    assert (card.tool, card.state) == ("t", state)


def test_an_approval_request_is_open_until_it_is_answered() -> None:
    first, second = ApprovalPrompt("q", "rm x"), ApprovalPrompt("r", "rm y")
    asked = replay_events(numbered(first, second))
    assert asked.questions == (first, second)
    answered = apply_event(asked, StreamEvent(9, 0.0, ApprovalClosed("q", "deny", "timeout")), 0.0)
    assert answered.questions == (second,)
    assert answered.blocks == (ApprovalBlock(first, "deny", "timeout"),)


def test_a_running_card_is_timed_by_our_clock_though_the_servers_is_wrong() -> None:
    behind = 1000.0  # the server's clock
    view = apply_event(EMPTY_VIEW, StreamEvent(0, 5000 - behind, StreamStarted()), 5000.0)
    view = apply_event(
        view, StreamEvent(1, 5010 - behind, ToolCallStarted("a", "t")), 5010.25
    )  # heard a little late
    (card,) = view.blocks
    assert isinstance(card, ToolCard)
    assert view.elapsed(card, 5013.0) == pytest.approx(3.0)
    assert EMPTY_VIEW.elapsed(card, 5013.0) == 0.0


@pytest.mark.parametrize(
    ("end", "code"), [(RunCompleted("x"), 0), (RunFailed("x"), 1), (RunCancelled(), 130)]
)
def test_the_exit_code(end: Body, code: int) -> None:
    assert exit_code(replay_events(numbered(end))) == code


def test_a_run_without_an_end_has_failed() -> None:
    assert exit_code(EMPTY_VIEW) == 1


# Reading


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"seq": true}', '{"seq": "1"}', "1"])
def test_data_that_is_not_an_event(text: str) -> None:
    with pytest.raises(InvalidEvent):
        read_event(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
names = st.sampled_from(
    [
        "delta",
        "tool",
        "toolCallId",
        "preview",
        "choices",
        "usage",
        "duration",
        "error",
        "status",
        "approval_id",
        "reason",
        "timestamp",
    ]
)
kinds = st.sampled_from(
    [
        "message.delta",
        "tool.started",
        "tool.completed",
        "approval.request",
        "run.completed",
        "run.failed",
        "?",
    ]
)


@given(kinds, st.dictionaries(names, json_values, max_size=6))
def test_an_event_of_any_shape_can_be_read(kind: str, fields: dict[str, Any]) -> None:
    event = read_event(json.dumps({**fields, "event": kind, "seq": 1}))
    assert event.seq == 1
    assert apply_event(EMPTY_VIEW, event, 0.0).seq == 1


def test_an_approval_request_with_unknown_choices() -> None:
    event = read_event('{"event": "approval.request", "seq": 0, "choices": ["maybe", "always"]}')
    assert isinstance(event.body, ApprovalPrompt)
    assert event.body.choices == (Choice.ALWAYS,)
    event = read_event('{"event": "approval.request", "seq": 0, "choices": ["maybe"]}')
    assert isinstance(event.body, ApprovalPrompt)
    assert event.body.choices == (Choice.ONCE, Choice.DENY)
