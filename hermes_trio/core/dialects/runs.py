"""Runs: changes rendered as a stream of events, and the run object.

A frame has an ``id:`` line and no ``event:`` line: browsers deliver named events only to listeners
of that name, so the kind of an event is the field ``event`` of its data. The id is also the field
``seq``; it counts from 0, without a gap unless the process died, and a browser that reconnects
sends the last one back.

The order of a stream: ``run.started`` at once; then one event per change; ``run.completed``,
``run.failed`` or ``run.cancelled``; the comment ``: stream closed``. All frames are a pure function
of the header and the changes, so a stream is resumed after any event by rendering it again and
skipping what the client has. A client that names an event which the log does not contain gets the
last one.

Existing clients know three ends: ``completed``, ``failed``, ``cancelled``. :func:`final_state` maps
an outcome to one of them; the fields ``incomplete`` and ``reason`` say what the status cannot. The
object of an ended run contains its output however it ended, because nothing else does once its
events have expired.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from hermes_trio.core import jobs, tool_display
from hermes_trio.core.changes import (
    ApprovalRequested,
    ApprovalResolved,
    CallEnded,
    CallStarted,
    Change,
    ClientToolCalled,
    Ended,
    NumbersSkipped,
    ReasoningAdded,
    TextAdded,
    ToolOutputAdded,
)
from hermes_trio.core.dialects.responses import usage_block
from hermes_trio.core.dialects.wire import (
    PREVIEW_CHARACTERS,
    SHOWN_CHARACTERS,
    encode,
    numbered_frame,
    pending_fields,
    request_fields,
    resolution_fields,
)
from hermes_trio.core.messages import MessageItem
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.records import ALL_ENDS, EndedRun, LiveRun, RunEnd, RunHeader
from hermes_trio.core.run_status import RunStateMachine, RunStatus, final_transition
from hermes_trio.core.sessions import build_preview
from hermes_trio.core.shorten import shorten, shorten_json
from hermes_trio.core.state import RUN_ENDS, RunState

FROM_THE_START = -1  # the event number a new client resumes after
CLOSED = b": stream closed\n\n"
STARTED = "run.started"
NEW = RunStatus()

_EVENT_NAMES: Mapping[type[Change], str] = MappingProxyType(
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


# -- outcomes and times --


def final_state(outcome: Outcome) -> RunState:
    """Return the state in which a run ended, in the terms of the Runs API."""
    return RUN_ENDS[final_transition(outcome)]


def ends_in_states(states: Collection[str]) -> frozenset[tuple[Status, Reason]]:
    """Return every combination of status and reason that the Runs API shows as one of the given states."""
    return frozenset(end for end in ALL_ENDS if final_state(Outcome(*end)) in states)


def event_name(change: Change) -> str:
    """Return the name of the event for a change."""
    return (
        f"run.{final_state(change.outcome)}"
        if isinstance(change, Ended)
        else _EVENT_NAMES[type(change)]
    )


def final_text(texts: Sequence[str], outcome: Outcome) -> str:
    """Return the text after the last tool round, or all text if the run did not complete."""
    return "".join(texts[-1:] if outcome.status is Status.COMPLETED else texts)


def reason_fields(outcome: Outcome) -> dict[str, Any]:
    """Return what explains a run that did not complete normally; nothing for the others."""
    if outcome.status is Status.COMPLETED:
        return {}
    match final_state(outcome):
        case RunState.COMPLETED:
            return {"incomplete": True, "reason": str(outcome.reason)}
        case RunState.CANCELLED:
            return {"reason": str(outcome.reason)}
        case _:
            return {
                "error": outcome.failure.message or "The run failed.",
                "reason": str(outcome.reason),
            }


class Timestamps:
    """The time of the latest change.

    A change without a time of its own has that of the one before.
    """

    def __init__(self, header: RunHeader) -> None:
        self._began = header.stamp.created_at
        self._latest = 0.0
        self._starts: dict[str, float] = {}  # of running calls

    def take(self, change: Change) -> None:
        """Apply one change."""
        match change:
            case CallStarted(call_id=call_id, at=at):
                self._starts[call_id] = at
            case CallEnded(call_id=call_id, duration=duration):
                at = self._starts.pop(call_id, 0.0) + duration
            case ApprovalRequested(at=at) | ApprovalResolved(at=at) | Ended(at=at):
                pass
            case _:
                return
        self._latest = max(self._latest, at)

    @property
    def latest(self) -> float:
        """Seconds since the epoch."""
        return round(self._began + self._latest, 6)


# -- the run object --


def status_after(changes: Iterable[Change]) -> RunStatus:
    """Return the status of a run from its whole log."""
    machine = RunStateMachine()
    machine.begin()
    for change in changes:
        machine.take(change)
    return machine.status


def run_object(
    run: LiveRun | EndedRun, so_far: Sequence[Change] = (), status: RunStatus = NEW
) -> dict[str, Any]:
    """Return the current run object.

    For a live run, pass at least its latest changes, and its status.
    """
    if isinstance(run, EndedRun):
        texts = [item.text for item in run.items if isinstance(item, MessageItem)]
        shown = end_object(RunEnd(run.header, run.outcome, run.ended_after))
        return {**shown, "output": final_text(texts, run.outcome)}
    times = Timestamps(run.header)
    for change in so_far:
        times.take(change)
    last_event = event_name(so_far[-1]) if so_far else STARTED
    shown = _common_fields(run.header, status.state, times, last_event)
    return {**shown, **pending_fields(status.open_approvals)}


def end_object(run: RunEnd) -> dict[str, Any]:
    """Return the object of an ended run, without its output."""
    end = Ended(run.outcome, run.ended_after)
    times = Timestamps(run.header)
    times.take(end)
    return {
        **_common_fields(run.header, final_state(run.outcome), times, event_name(end)),
        "session_id": run.outcome.session_id or run.header.session_id,
        "usage": usage_block(run.outcome.usage),
        **reason_fields(run.outcome),
    }


def _common_fields(
    header: RunHeader, state: RunState, times: Timestamps, last_event: str
) -> dict[str, Any]:
    return {
        "object": "hermes.run",
        "run_id": header.run_id,
        "kind": header.kind,
        "status": str(state),
        "created_at": Timestamps(header).latest,
        "updated_at": times.latest,
        "session_id": header.session_id,
        "model": header.stamp.model,
        "last_event": last_event,
        "metadata": header.request.get("metadata") or {},
        "client": header.client or None,
        "preview": build_preview(header.messages) or None,
        **({"job_id": header.request.get("job_id")} if header.kind == jobs.KIND else {}),
    }


# -- streams --


class RunsStream:
    """Renders one run.

    Events up to number ``after`` are counted but not written: the client has them.
    """

    def __init__(self, header: RunHeader, after: int = FROM_THE_START) -> None:
        self._run_id = header.run_id
        self._after = after
        self._number = 0  # of the next event
        self._times = Timestamps(header)
        self._texts: dict[int, list[str]] = {}  # by position in the turn

    def opening(self) -> bytes:
        """Return the first event. It is sent before the agent starts."""
        return self._frame(STARTED, dict)

    def render(self, changes: Iterable[Change]) -> bytes:
        """Return all frames of some changes, joined for one write."""
        return b"".join(map(self._render, changes))

    def _render(self, change: Change) -> bytes:
        self._times.take(change)
        if type(change) is TextAdded:
            self._texts.setdefault(change.item, []).append(change.text)
        if isinstance(change, NumbersSkipped):
            self._number += change.count
            return b""
        if not isinstance(change, Ended):
            return self._frame(event_name(change), partial(_FIELDS[type(change)], change))
        if self._after > self._number:
            # There is no such event, so the client does not have this one.
            self._after = FROM_THE_START
        return self._frame(event_name(change), partial(self._end_fields, change.outcome)) + CLOSED

    def _frame(self, name: str, make_fields: Callable[[], Mapping[str, Any]]) -> bytes:
        number = self._number
        self._number += 1
        if number <= self._after:
            return b""
        head = {"event": name, "run_id": self._run_id, "timestamp": self._times.latest}
        return numbered_frame(number, encode({**head, **make_fields(), "seq": number}))

    def _end_fields(self, outcome: Outcome) -> dict[str, Any]:
        if final_state(outcome) is not RunState.COMPLETED:
            return reason_fields(outcome)
        texts = ["".join(pieces) for pieces in self._texts.values()]
        return {
            "output": final_text(texts, outcome),
            "usage": usage_block(outcome.usage),
            **reason_fields(outcome),
        }


def frames_after(
    header: RunHeader, changes: Iterable[Change], after: int = FROM_THE_START
) -> bytes:
    """Render a whole log from the event after ``after`` on."""
    stream = RunsStream(header, after)
    return stream.opening() + stream.render(changes)


def _delta(change: TextAdded | ReasoningAdded) -> dict[str, Any]:
    return {"delta": change.text}


def _tool_output(change: ToolOutputAdded) -> dict[str, Any]:
    return {"toolCallId": change.call_id, "delta": shorten(change.text, SHOWN_CHARACTERS)}


def _call_started(change: CallStarted) -> dict[str, Any]:
    return {
        "tool": change.name,
        "preview": tool_display.preview(change.name, change.args, PREVIEW_CHARACTERS) or None,
        "toolCallId": change.call_id,
        "args": shorten_json(change.args, SHOWN_CHARACTERS),
    }


def _call_ended(change: CallEnded) -> dict[str, Any]:
    return {
        "tool": change.name,
        "toolCallId": change.call_id,
        "duration": round(change.duration, 3),
        "error": change.is_error,
        "result": shorten(change.result, SHOWN_CHARACTERS),
        "status": str(change.state),
    }


def _client_tool_called(change: ClientToolCalled) -> dict[str, Any]:
    return {
        "tool": change.name,
        "toolCallId": change.call_id,
        "arguments": shorten(change.arguments, SHOWN_CHARACTERS),
    }


# The fields of each kind of event, beside those that all have.
_FIELDS: Mapping[type[Change], Callable[[Any], dict[str, Any]]] = {
    TextAdded: _delta,
    ReasoningAdded: _delta,
    CallStarted: _call_started,
    ToolOutputAdded: _tool_output,
    CallEnded: _call_ended,
    ClientToolCalled: _client_tool_called,
    ApprovalRequested: request_fields,
    ApprovalResolved: resolution_fields,
}
