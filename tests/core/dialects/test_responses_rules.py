"""The reader of Responses streams accepts a good stream and rejects every spoilt one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_trio.core.changes import (
    CallEnded,
    CallStarted,
    Change,
    Ended,
    ReasoningAdded,
    TextAdded,
)
from hermes_trio.core.dialects.responses import ResponsesStream
from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.core.state import CallState
from tests.support.responses_stream_rules import HEADER, Json, Reader, events_of


def good() -> list[Json]:
    changes: list[Change] = [
        ReasoningAdded(0, "hm"),
        TextAdded(1, "a"),
        CallStarted(2, "c1", "t", {"x": 1}, 0.0),
        CallEnded(2, "c1", "t", CallState.COMPLETED, "r", False, 1.0),
        TextAdded(3, "b"),
        Ended(Outcome(Status.COMPLETED)),
    ]
    stream = ResponsesStream(HEADER)
    return events_of(stream.opening() + stream.render(changes))


def renumbered(events: list[Json]) -> list[Json]:
    return [{**event, "sequence_number": n} for n, event in enumerate(events)]


def without(kind: str) -> Callable[[list[Json]], list[Json]]:
    return lambda events: renumbered([event for event in events if event["type"] != kind])


def with_change(kind: str, **fields: Any) -> Callable[[list[Json]], list[Json]]:
    return lambda events: [
        {**event, **fields} if event["type"] == kind else event for event in events
    ]


def test_a_good_stream_passes() -> None:
    reader = Reader().read(good())
    kinds = [item["type"] for item in reader.items]
    assert kinds == ["reasoning", "message", "function_call", "function_call_output", "message"]


@pytest.mark.parametrize(
    "spoil",
    [
        without("response.created"),
        without("response.completed"),
        without("response.output_item.done"),
        without("response.output_item.added"),
        without("response.content_part.added"),
        without("response.function_call_arguments.delta"),
        with_change("response.output_text.delta", item_id="msg_other"),
        with_change("response.output_text.delta", output_index=0),
        with_change("response.output_text.delta", content_index=1),
        with_change("response.output_text.delta", sequence_number=0),
        with_change("response.output_text.done", text="other"),
        with_change("response.output_item.added", output_index=7),
        with_change("response.in_progress", type="response.cancelled"),
        lambda events: renumbered([*events, events[-1]]),
        lambda events: renumbered([*events[:3], events[2], *events[3:]]),
    ],
)
def test_a_spoilt_stream_does_not(spoil: Callable[[list[Json]], list[Json]]) -> None:
    with pytest.raises((AssertionError, KeyError, IndexError)):
        Reader().read(spoil(good()))
