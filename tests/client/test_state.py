"""The view of a run: whatever comes, in whatever order, counts once and leaves nothing open at the end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.client.events import (
    Answered,
    BadEvent,
    Begun,
    Body,
    CallBegan,
    CallOver,
    CallPrinted,
    Cancelled,
    Completed,
    Event,
    Failed,
    HandedOver,
    Question,
    TextSaid,
    Thought,
    Unknown,
    read_event,
)
from hermes_trio.client.state import (
    EMPTY,
    PRINTED_CHARACTERS,
    Card,
    CardState,
    Mused,
    Said,
    Settled,
    exit_code,
    replayed,
    step,
)
from hermes_trio.core.dialects.runs import frames_after
from hermes_trio.core.events import Choice
from tests.client.runs import HEADER, changes_of, data_of
from tests.support.strategies import cuts, scripts

ids = st.sampled_from(["a", "b", ""])
texts = st.text(max_size=5)
endings = st.one_of(st.builds(Completed, texts), st.builds(Failed, texts), st.builds(Cancelled, texts))
bodies: st.SearchStrategy[Body] = st.one_of(
    st.just(Begun()),
    st.builds(TextSaid, texts),
    st.builds(Thought, texts),
    st.builds(CallBegan, ids, texts, texts),
    st.builds(CallPrinted, ids, texts),
    st.builds(CallOver, ids, texts, texts, st.floats(0, 9), st.booleans(), st.booleans()),
    st.builds(HandedOver, ids, texts, texts),
    st.builds(Question, ids, texts),
    st.builds(Answered, ids, st.sampled_from(["once", "deny"]), texts),
    st.builds(Unknown, texts),
    endings,
)
events = st.lists(st.builds(Event, st.integers(-1, 40), st.floats(0, 100), bodies), max_size=30).map(tuple)


def numbered(*said: Body) -> tuple[Event, ...]:
    return tuple(Event(number, float(number), body) for number, body in enumerate(said))


@given(events)
def test_every_event_counts_at_most_once(heard: tuple[Event, ...]) -> None:
    view, counted = EMPTY, []
    for event in heard:
        after = step(view, event, 50.0)
        if after.seq > view.seq:
            counted.append(event)
        else:
            assert after == view
        assert step(after, event, 50.0) == after
        view = after
    numbers = [event.seq for event in counted]
    assert numbers == sorted(set(numbers))
    assert view.text == "".join(event.body.text for event in counted if isinstance(event.body, TextSaid))
    cards = [block.call_id for block in view.blocks if isinstance(block, Card)]
    assert len(cards) == len(set(cards))


@given(events, endings)
def test_nothing_is_open_at_the_end_and_nothing_follows_it(heard: tuple[Event, ...], end: Body) -> None:
    view = step(replayed(heard), Event(99, 0.0, end), 0.0)
    assert view.is_over
    assert view.questions == ()
    assert all(block.state != CardState.RUNNING for block in view.blocks if isinstance(block, Card))
    assert step(view, Event(100, 0.0, TextSaid("late")), 0.0) == view


@given(scripts, cuts, st.data())
def test_a_stream_that_is_picked_up_anywhere_leads_to_the_same_view(
    script: list[Any], reason: Any, data: st.DataObject
) -> None:
    changes = changes_of(script, reason)
    whole = [read_event(each) for each in data_of(frames_after(HEADER, changes))]
    broken: list[Event] = []
    reached = -1
    while reached < len(whole) - 1:
        # Some of what was known comes again, as after a client that lost its place.
        begin = data.draw(st.integers(-1, reached))
        end = data.draw(st.integers(reached + 1, len(whole) - 1))
        broken += [read_event(each) for each in data_of(frames_after(HEADER, changes, begin))][: end - begin]
        reached = end
    unbroken = replayed(tuple(whole))
    assert replayed(tuple(broken)) == unbroken
    assert unbroken.is_over
    assert [event.seq for event in whole] == [*range(len(whole))]
    assert not any(isinstance(event.body, Unknown) for event in whole)


def test_texts_of_one_kind_grow_together() -> None:
    view = replayed(
        numbered(Thought("a"), Thought("b"), TextSaid(""), TextSaid("c"), TextSaid("d"), Thought("e"))
    )
    assert view.blocks == (Mused("ab"), Said("cd"), Mused("e"))
    assert view.text == "cd"


def test_a_card_from_start_to_end() -> None:
    begun = numbered(CallBegan("a", "terminal", "date"), CallPrinted("a", "x" * 5000), CallPrinted("a", "y"))
    (card,) = replayed(begun).blocks
    assert isinstance(card, Card)
    assert (card.state, len(card.printed), card.printed[-2:]) == (CardState.RUNNING, PRINTED_CHARACTERS, "xy")
    over = step(replayed(begun), Event(9, 9.0, CallOver("a", "terminal", "done", 1.5)), 0.0)
    (card,) = over.blocks
    assert isinstance(card, Card)
    assert (card.state, card.result, card.seconds, card.preview) == (CardState.DONE, "done", 1.5, "date")


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (CallOver("a", "t", is_error=True), CardState.FAILED),
        (CallOver("a", "t", is_error=True, is_cancelled=True), CardState.CANCELLED),
        (HandedOver("a", "t", "{}"), CardState.HANDED_OVER),
    ],
)
def test_other_ends_of_a_card(body: Body, state: CardState) -> None:
    (card,) = replayed(numbered(body)).blocks
    assert isinstance(card, Card)
    assert (card.tool, card.state) == ("t", state)


def test_a_question_waits_until_it_is_answered() -> None:
    first, second = Question("q", "rm x"), Question("r", "rm y")
    asked = replayed(numbered(first, second))
    assert asked.questions == (first, second)
    answered = step(asked, Event(9, 0.0, Answered("q", "deny", "timeout")), 0.0)
    assert answered.questions == (second,)
    assert answered.blocks == (Settled(first, "deny", "timeout"),)


def test_a_running_card_is_timed_by_our_clock_though_the_servers_is_wrong() -> None:
    behind = 1000.0  # the server's clock
    view = step(EMPTY, Event(0, 5000 - behind, Begun()), 5000.0)
    view = step(view, Event(1, 5010 - behind, CallBegan("a", "t")), 5010.25)  # heard a little late
    (card,) = view.blocks
    assert isinstance(card, Card)
    assert view.elapsed(card, 5013.0) == pytest.approx(3.0)
    assert EMPTY.elapsed(card, 5013.0) == 0.0


@pytest.mark.parametrize(("end", "code"), [(Completed("x"), 0), (Failed("x"), 1), (Cancelled(), 130)])
def test_the_exit_code(end: Body, code: int) -> None:
    assert exit_code(replayed(numbered(end))) == code


def test_a_run_without_an_end_has_failed() -> None:
    assert exit_code(EMPTY) == 1


# Reading


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"seq": true}', '{"seq": "1"}', "1"])
def test_what_is_no_event(text: str) -> None:
    with pytest.raises(BadEvent):
        read_event(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
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
    assert step(EMPTY, event, 0.0).seq == 1


def test_a_question_with_choices_that_nobody_knows() -> None:
    event = read_event('{"event": "approval.request", "seq": 0, "choices": ["maybe", "always"]}')
    assert isinstance(event.body, Question)
    assert event.body.choices == (Choice.ALWAYS,)
    event = read_event('{"event": "approval.request", "seq": 0, "choices": ["maybe"]}')
    assert isinstance(event.body, Question)
    assert event.body.choices == (Choice.ONCE, Choice.DENY)
