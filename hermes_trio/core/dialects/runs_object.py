"""The run object, and how an outcome looks in the Runs API: one place for streams and stored records.

Clients of today's server know three ways to end: ``completed``, ``failed``, ``cancelled``. An outcome of ours is one of
them by this rule: where the agent itself had the last word and it was no failure, the run is completed, with
``incomplete: true`` and a ``reason`` if the agent ran out of tokens or gave up; what somebody stopped is cancelled;
all the rest (errors, a time limit, a shutdown, a process that died) is failed, with the ``reason``.

An object of a run that has ended tells all that there is, whatever the end: the text of a run that was stopped or failed
is nowhere else once its events are not kept any longer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

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
from hermes_trio.core.dialects.approvals import pending_block
from hermes_trio.core.dialects.responses_object import usage_block
from hermes_trio.core.items import Item, MessageItem
from hermes_trio.core.lifecycle import RUN_ENDS, RunState
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.progress import Progress, Standing, last_move
from hermes_trio.core.record import ALL_ENDS, EndedRun, LiveRun, RunEnd, RunHeader

STARTED = "run.started"
NEW = Standing()

_KINDS: Mapping[type[Change], str] = MappingProxyType(
    {
        TextAdded: "message.delta",
        ReasoningAdded: "reasoning.delta",
        CallStarted: "tool.started",
        CallSaid: "tool.output",
        CallEnded: "tool.completed",
        ClientCalled: "tool.handed_over",
        ApprovalRequested: "approval.request",
        ApprovalResolved: "approval.responded",
    }
)


def end_status(outcome: Outcome) -> RunState:
    """How a run ended, in the words of the Runs API."""
    return RUN_ENDS[last_move(outcome)]


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


def standing_of(changes: Iterable[Change]) -> Standing:
    """Where a run stands of which there is nothing but its whole log."""
    progress = Progress()
    progress.begin()
    for change in changes:
        progress.take(change)
    return progress.standing


def run_object(
    run: LiveRun | EndedRun, so_far: Sequence[Change] = (), standing: Standing = NEW
) -> dict[str, Any]:
    """A run as it stands. One that is still live has its changes so far, the latest of them at least."""
    if isinstance(run, EndedRun):
        return _ended(run)
    times = Times(run.header)
    for change in so_far:
        times.take(change)
    last = kind_of(so_far[-1]) if so_far else STARTED
    return {**_body(run.header, standing.state, times, last), **pending_block(standing.questions)}


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
