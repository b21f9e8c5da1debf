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
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from hermes_trio.core.changes import (
    CallEnded,
    CallSaid,
    CallStarted,
    Change,
    Ended,
    ReasoningAdded,
    TextAdded,
)
from hermes_trio.core.dialects.responses_object import usage_block
from hermes_trio.core.items import Item, MessageItem
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.record import ALL_ENDS, EndedRun, LiveRun, RunEnd, RunHeader

STARTED = "run.started"

_KINDS: Mapping[type[Change], str] = MappingProxyType(
    {
        TextAdded: "message.delta",
        ReasoningAdded: "reasoning.delta",
        CallStarted: "tool.started",
        CallSaid: "tool.output",
        CallEnded: "tool.completed",
    }
)


class RunStatus(StrEnum):
    """Where a run stands, in the words of the Runs API."""

    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


_BY_STATUS = {
    Status.COMPLETED: RunStatus.COMPLETED,
    Status.CANCELLED: RunStatus.CANCELLED,
    Status.INCOMPLETE: RunStatus.FAILED,
    Status.FAILED: RunStatus.FAILED,
}
_LAST_WORDS = frozenset(
    {Reason.MAX_OUTPUT_TOKENS, Reason.AGENT_INCOMPLETE}
)  # the agent's own, though unfinished


def end_status(outcome: Outcome) -> RunStatus:
    """How a run ended, in the words of the Runs API."""
    return RunStatus.COMPLETED if outcome.reason in _LAST_WORDS else _BY_STATUS[outcome.status]


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
            case Ended():
                self._reach(change.at)
            case _:
                pass

    @property
    def latest(self) -> float:
        """In seconds since the epoch."""
        return round(self._began + self._latest, 6)

    def _reach(self, at: float) -> None:
        self._latest = max(self._latest, at)


def run_object(
    run: LiveRun | EndedRun, so_far: Sequence[Change] = (), is_stopping: bool = False
) -> dict[str, Any]:
    """A run as it stands. One that is still live has its changes so far, the latest of them at least."""
    if isinstance(run, EndedRun):
        return _ended(run)
    times = Times(run.header)
    for change in so_far:
        times.take(change)
    return _body(run.header, live_status(is_stopping), times, kind_of(so_far[-1]) if so_far else STARTED)


def live_status(is_stopping: bool) -> RunStatus:
    """Where a run stands that has not ended."""
    return RunStatus.STOPPING if is_stopping else RunStatus.RUNNING


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


def _body(header: RunHeader, status: RunStatus, times: Times, last_event: str) -> dict[str, Any]:
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
        case RunStatus.COMPLETED:
            return {"incomplete": True, "reason": str(outcome.reason)}
        case RunStatus.CANCELLED:
            return {"reason": str(outcome.reason)}
        case _:
            return {"error": outcome.failure.message or "The run failed.", "reason": str(outcome.reason)}
