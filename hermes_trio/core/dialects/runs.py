"""The run object, and how an outcome looks in the Runs API: one place for streams and stored records.

Clients of today's server know three ways to end: ``completed``, ``failed``, ``cancelled``. An outcome of ours is one of
them by this rule: where the agent itself had the last word and it was no failure, the run is completed, with
``incomplete: true`` and a ``reason`` if the agent ran out of tokens or gave up; what somebody stopped is cancelled;
all the rest (errors, a time limit, a shutdown, a process that died) is failed, with the ``reason``.

An object of a run that has ended tells all that there is, whatever the end: the text of a run that was stopped or failed
is nowhere else once its events are not kept any longer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from hermes_trio.core import tool_display
from hermes_trio.core.changes import (
    ApprovalRequested,
    ApprovalResolved,
    CallEnded,
    CallStarted,
    Change,
    ClientToolCalled,
    Ended,
    ReasoningAdded,
    TextAdded,
    ToolOutputAdded,
)
from hermes_trio.core.dialects.responses import usage_block
from hermes_trio.core.dialects.wire import (
    encode,
    numbered_frame,
    pending_block,
    request_fields,
    response_fields,
)
from hermes_trio.core.messages import Item, MessageItem
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.records import ALL_ENDS, EndedRun, LiveRun, RunEnd, RunHeader
from hermes_trio.core.run_status import RunStateMachine, RunStatus, final_transition
from hermes_trio.core.shorten import shorten, shorten_json
from hermes_trio.core.state import RUN_ENDS, RunState

STARTED = "run.started"
NEW = RunStatus()

_KINDS: Mapping[type[Change], str] = MappingProxyType(
    {
        TextAdded: "message.delta",
        ReasoningAdded: "reasoning.delta",
        CallStarted: "tool.started",
        ToolOutputAdded: "tool.output",
        CallEnded: "tool.completed",
        ClientToolCalled: "tool.handed_over",
        ApprovalRequested: "approval.request",
        ApprovalResolved: "approval.responded",
    }
)


def end_status(outcome: Outcome) -> RunState:
    """How a run ended, in the words of the Runs API."""
    return RUN_ENDS[final_transition(outcome)]


def kind_of(change: Change) -> str:
    """The event that tells of a change; there is exactly one for each."""
    return f"run.{end_status(change.outcome)}" if isinstance(change, Ended) else _KINDS[type(change)]


class Times:
    """When things happened. Changes that carry no time of their own count as told at the latest one known."""

    def __init__(self, header: RunHeader) -> None:
        self._began = header.stamp.created_at
        self._latest = 0.0
        self._starts: dict[str, float] = {}  # of the running calls

    def take(self, change: Change) -> None:
        """One more change."""
        match change:
            case CallStarted():
                self._starts[change.call_id] = change.at
                self._reach(change.at)
            case CallEnded():
                self._reach(self._starts.pop(change.call_id, 0.0) + change.duration)
            case ApprovalRequested() | ApprovalResolved() | Ended():
                self._reach(change.at)
            case _:
                pass

    @property
    def latest(self) -> float:
        """In seconds since the epoch."""
        return round(self._began + self._latest, 6)

    def _reach(self, at: float) -> None:
        self._latest = max(self._latest, at)


def status_after(changes: Iterable[Change]) -> RunStatus:
    """Where a run stands of which there is nothing but its whole log."""
    progress = RunStateMachine()
    progress.begin()
    for change in changes:
        progress.take(change)
    return progress.status


def run_object(
    run: LiveRun | EndedRun, so_far: Sequence[Change] = (), status: RunStatus = NEW
) -> dict[str, Any]:
    """A run as it stands. One that is still live has its changes so far, the latest of them at least."""
    if isinstance(run, EndedRun):
        return _ended(run)
    times = Times(run.header)
    for change in so_far:
        times.take(change)
    last = kind_of(so_far[-1]) if so_far else STARTED
    return {**_body(run.header, status.state, times, last), **pending_block(status.open_approvals)}


def ends_of(statuses: Collection[str]) -> frozenset[tuple[Status, Reason]]:
    """All the ways to end that these words of the Runs API mean."""
    return frozenset(end for end in ALL_ENDS if end_status(Outcome(*end)) in statuses)


def _ended(run: EndedRun) -> dict[str, Any]:
    output = answer(_texts(run.items), run.outcome)
    return {**end_object(RunEnd(run.header, run.outcome, run.ended_after)), "output": output}


def end_object(run: RunEnd) -> dict[str, Any]:
    """A run that has ended, without its output."""
    end = Ended(run.outcome, run.ended_after)
    times = Times(run.header)
    times.take(end)
    return {
        **_body(run.header, end_status(run.outcome), times, kind_of(end)),
        "session_id": run.outcome.session_id or run.header.session_id,
        "usage": usage_block(run.outcome.usage),
        **why(run.outcome),
    }


def _body(header: RunHeader, status: RunState, times: Times, last_event: str) -> dict[str, Any]:
    return {
        "object": "hermes.run",
        "run_id": header.run_id,
        "kind": header.kind,
        "status": str(status),
        "created_at": Times(header).latest,
        "updated_at": times.latest,
        "session_id": header.session_id,
        "model": header.stamp.model,
        "last_event": last_event,
        "metadata": header.request.get("metadata") or {},
    }


def _texts(items: Iterable[Item]) -> list[str]:
    return [item.text for item in items if isinstance(item, MessageItem)]


def answer(texts: Sequence[str], outcome: Outcome) -> str:
    """The text after the last tool round; of a turn that was cut, everything there is."""
    return "".join(texts[-1:] if outcome.status is Status.COMPLETED else texts)


def why(outcome: Outcome) -> dict[str, Any]:
    """What is to be said of a run that did not simply complete."""
    if outcome.status is Status.COMPLETED:
        return {}
    match end_status(outcome):
        case RunState.COMPLETED:
            return {"incomplete": True, "reason": str(outcome.reason)}
        case RunState.CANCELLED:
            return {"reason": str(outcome.reason)}
        case _:
            return {"error": outcome.failure.message or "The run failed.", "reason": str(outcome.reason)}


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


def _printed(change: ToolOutputAdded) -> dict[str, Any]:
    return {"toolCallId": change.call_id, "delta": shorten(change.text, SHOWN_CHARACTERS)}


def _started(change: CallStarted) -> dict[str, Any]:
    return {
        "tool": change.name,
        "preview": tool_display.preview(change.name, change.args, PREVIEW_CHARACTERS) or None,
        "toolCallId": change.call_id,
        "args": shorten_json(change.args, SHOWN_CHARACTERS),
    }


def _handed_over(change: ClientToolCalled) -> dict[str, Any]:
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
    ToolOutputAdded: _printed,
    CallEnded: _over,
    ClientToolCalled: _handed_over,
    ApprovalRequested: request_fields,
    ApprovalResolved: response_fields,
}
