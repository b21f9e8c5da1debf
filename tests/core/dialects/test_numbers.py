"""The numbers of events in every dialect: how many a change takes, and how they go on after a crash."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.core.changes import (
    Change,
    ClientToolCalled,
    Ended,
    NumbersSkipped,
    ReasoningAdded,
)
from hermes_trio.core.dialects.chat import ChatStream
from hermes_trio.core.dialects.responses import APPROVAL_ITEMS, TOOL_ITEMS, ResponsesStream
from hermes_trio.core.dialects.runs import RunsStream
from hermes_trio.core.dialects.sessions import SessionStream
from hermes_trio.core.dialects.wire import MAX_EVENTS_PER_CHANGE, STATUS_LINE
from hermes_trio.core.events import Event
from hermes_trio.core.outcome import Outcome, Reason
from hermes_trio.core.records import RunHeader
from hermes_trio.core.turn import Turn
from tests.support.dialect_frames import numbered
from tests.support.responses_stream_rules import HEADER
from tests.support.strategies import scripts
from tests.support.turn_rules import feed, played

SKIPPED = 1_000

Stream = ResponsesStream | RunsStream | SessionStream
Open = Callable[[RunHeader, int], Stream]


def responses(**request: object) -> Open:
    return lambda header, after: ResponsesStream(evolve(header, request=request), after)


DIALECTS: dict[str, Open] = {
    "responses": responses(),
    "responses, MCP calls": responses(**{TOOL_ITEMS: "mcp_call"}),
    "responses, approval items": responses(**{TOOL_ITEMS: "mcp_call", APPROVAL_ITEMS: True}),
    "responses, function calls and approval items": responses(**{APPROVAL_ITEMS: True}),
    "responses, status line": responses(**{STATUS_LINE: True}),
    "runs": RunsStream,
    "sessions": SessionStream,
}
in_every_dialect = pytest.mark.parametrize("open_stream", DIALECTS.values(), ids=DIALECTS)


def stream(open_stream: Open, changes: list[Change], after: int = -1) -> dict[int, bytes]:
    opened = open_stream(HEADER, after)
    return numbered(opened.opening() + opened.render(changes))


@in_every_dialect
@given(script=scripts)
@settings(max_examples=30)
def test_a_change_takes_few_numbers(open_stream: Open, script: list[Event]) -> None:
    """Recovery counts on it to skip all numbers that clients may have seen."""
    turn, opened = Turn(), open_stream(HEADER, -1)
    changes = feed(turn, script)
    changes += turn.suspend(5.0)[0] if turn.is_waiting else turn.cancel(Reason.TIMEOUT, 5.0)
    for change in changes:
        frames = numbered(opened.render([change]))
        assert len(frames) <= MAX_EVENTS_PER_CHANGE or isinstance(change, Ended)


def test_the_change_that_takes_most_numbers() -> None:
    opened = ResponsesStream(HEADER)
    opened.render([ReasoningAdded(0, "hm")])
    frames = numbered(opened.render([ClientToolCalled(1, "c", "get_weather", "{}")]))
    assert len(frames) == MAX_EVENTS_PER_CHANGE - 1


@in_every_dialect
@given(script=scripts, cut=st.integers(0, 25))
@settings(max_examples=30)
def test_skipped_numbers_are_missing_and_nothing_else(
    open_stream: Open, script: list[Event], cut: int
) -> None:
    _, changes = played(script, Reason.PROCESS_DIED)
    plain, before = stream(open_stream, changes), stream(open_stream, changes[:cut])
    whole = stream(open_stream, [*changes[:cut], NumbersSkipped(SKIPPED), *changes[cut:]])
    assert list(whole) == [n if n in before else n + SKIPPED for n in plain]


@in_every_dialect
@pytest.mark.parametrize("ahead", [0, 1, SKIPPED // 2, SKIPPED])
def test_resuming_inside_the_gap(open_stream: Open, ahead: int) -> None:
    """A client that has events which the dead process did not store gets all that came after them."""
    stored: list[Change] = [ReasoningAdded(0, "hm")]
    end = Ended(Outcome.from_cancellation(Reason.PROCESS_DIED), 5.0)
    changes = [*stored, NumbersSkipped(SKIPPED), end]
    last = max(stream(open_stream, stored))
    whole = stream(open_stream, changes)
    resumed = stream(open_stream, changes, last + ahead)
    assert resumed == {number: frame for number, frame in whole.items() if number > last}
    assert min(resumed) == last + SKIPPED + 1


def test_chat_has_no_numbers_to_skip() -> None:
    assert ChatStream(HEADER.stamp).render([NumbersSkipped(SKIPPED)]) == b""
