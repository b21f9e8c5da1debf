"""Runs, streamed: changes in, SSE frames out.

A frame has an ``id:`` line and no ``event:`` line: browsers hand named events only to listeners of that name, so the
kind of an event is the field ``event`` of its data. The id is also the field ``seq``; it counts from 0 without a gap, and
a browser that lost its connection sends the last one back.

The order on the wire: ``run.started`` at once; then one event for every change; ``run.completed``, ``run.failed`` or
``run.cancelled``; the comment ``: stream closed``. Which of the three, ``runs_object`` decides. All frames are a pure
function of the header and the changes, so a stream can be picked up after any of its events by rendering it again and
leaving out what the client has. A client that names an event which the log does not have gets the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from hermes_trio.core import tools
from hermes_trio.core.changes import (
    ApprovalRequested,
    ApprovalResolved,
    CallEnded,
    CallSaid,
    CallStarted,
    Change,
    ClientCalled,
    Ended,
    ReasoningAdded,
    TextAdded,
)
from hermes_trio.core.dialects.approvals import request_fields, response_fields
from hermes_trio.core.dialects.responses_object import usage_block
from hermes_trio.core.dialects.runs_object import STARTED, Times, answer, end_status, kind_of, why
from hermes_trio.core.lifecycle import RunState
from hermes_trio.core.outcome import Outcome
from hermes_trio.core.record import RunHeader
from hermes_trio.core.shorten import shorten, shorten_json
from hermes_trio.core.wire import encode, numbered_frame

FROM_THE_START = -1  # the number of the last event that a new reader has
CLOSED = b": stream closed\n\n"

# One event stays below what line readers take (128 KiB in the oldest): a character can take twelve bytes when escaped.
SHOWN_CHARACTERS = 4_000
PREVIEW_CHARACTERS = 200


class RunsStream:
    """Renders one run. Frames up to the number ``after`` are counted, not written: the client has them."""

    def __init__(self, header: RunHeader, after: int = FROM_THE_START) -> None:
        self._run_id = header.run_id
        self._after = after
        self._number = 0  # of the next event
        self._times = Times(header)
        self._texts: dict[int, list[str]] = {}  # what was said, by its place in the turn

    def opening(self) -> bytes:
        """The first event: it goes out before the agent exists."""
        return self._frame(STARTED, dict)

    def render(self, changes: Iterable[Change]) -> bytes:
        """All frames of some changes, in one piece for one write."""
        return b"".join(map(self._render, changes))

    def _render(self, change: Change) -> bytes:
        self._times.take(change)
        if type(change) is TextAdded:
            self._texts.setdefault(change.item, []).append(change.text)
        if isinstance(change, Ended):
            return self._last(change)
        return self._frame(kind_of(change), partial(_FIELDS[type(change)], change))

    def _last(self, change: Ended) -> bytes:
        if self._after > self._number:
            # The client has events that died with a process before they were logged, but not this one.
            self._after = FROM_THE_START
        return self._frame(kind_of(change), partial(self._end, change.outcome)) + CLOSED

    def _frame(self, kind: str, fields: Callable[[], Mapping[str, Any]]) -> bytes:
        number = self._number
        self._number += 1
        if number <= self._after:
            return b""
        head = {"event": kind, "run_id": self._run_id, "timestamp": self._times.latest}
        return numbered_frame(number, encode({**head, **fields(), "seq": number}))

    def _end(self, outcome: Outcome) -> dict[str, Any]:
        if end_status(outcome) is not RunState.COMPLETED:
            return why(outcome)
        texts = ["".join(pieces) for pieces in self._texts.values()]
        return {"output": answer(texts, outcome), "usage": usage_block(outcome.usage), **why(outcome)}


def frames_after(header: RunHeader, changes: Iterable[Change], after: int = FROM_THE_START) -> bytes:
    """The stream of a whole log from the event after ``after`` on."""
    stream = RunsStream(header, after)
    return stream.opening() + stream.render(changes)


def _delta(change: TextAdded | ReasoningAdded) -> dict[str, Any]:
    return {"delta": change.text}


def _printed(change: CallSaid) -> dict[str, Any]:
    return {"toolCallId": change.call_id, "delta": shorten(change.text, SHOWN_CHARACTERS)}


def _started(change: CallStarted) -> dict[str, Any]:
    return {
        "tool": change.name,
        "preview": tools.preview(change.name, change.args, PREVIEW_CHARACTERS) or None,
        "toolCallId": change.call_id,
        "args": shorten_json(change.args, SHOWN_CHARACTERS),
    }


def _handed_over(change: ClientCalled) -> dict[str, Any]:
    return {
        "tool": change.name,
        "toolCallId": change.call_id,
        "arguments": shorten(change.arguments, SHOWN_CHARACTERS),
    }


def _over(change: CallEnded) -> dict[str, Any]:
    return {
        "tool": change.name,
        "toolCallId": change.call_id,
        "duration": round(change.duration, 3),
        "error": change.is_error,
        "result": shorten(change.result, SHOWN_CHARACTERS),
        "status": str(change.state),
    }


# What an event tells of its change, beside what all events have.
_FIELDS: Mapping[type[Change], Callable[[Any], dict[str, Any]]] = {
    TextAdded: _delta,
    ReasoningAdded: _delta,
    CallStarted: _started,
    CallSaid: _printed,
    CallEnded: _over,
    ClientCalled: _handed_over,
    ApprovalRequested: request_fields,
    ApprovalResolved: response_fields,
}
