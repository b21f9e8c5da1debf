"""From a log back to the turn that wrote it."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_trio.core.changes import (
    ApprovalRequested,
    ApprovalResolved,
    CallEnded,
    CallSaid,
    CallStarted,
    Change,
    ReasoningAdded,
    TextAdded,
)
from hermes_trio.core.events import (
    AnsweredBy,
    ApprovalAnswered,
    ApprovalWanted,
    Event,
    Reasoning,
    Text,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
)
from hermes_trio.core.lifecycle import CallState
from hermes_trio.core.turn import Turn


class Rebuilt:
    """A turn fed from its own changes. What the turn had filtered is not in the log, so nothing is filtered twice."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self.turn = Turn()
        self.at = 0.0  # the latest moment that the log knows
        self._starts: dict[str, float] = {}
        for change in changes:
            for event in self._events(change):
                self.turn.take(event)

    def _events(self, change: Change) -> Iterable[Event]:
        match change:
            case TextAdded(_, text):
                yield Text(text)
            case ReasoningAdded(_, text):
                yield Reasoning(text)
            case CallStarted():
                yield self._start(change)
            case CallSaid():
                yield ToolOutput(change.call_id, change.text)
            case CallEnded() if change.state is CallState.COMPLETED:
                yield self._end(change)
            case ApprovalRequested():
                yield self._wish(change)
            case ApprovalResolved() if change.by is not AnsweredBy.RUN_ENDED:
                yield self._answer(change)
            case _:
                pass  # what the end of the turn closed comes again when the turn is ended again

    def _wish(self, change: ApprovalRequested) -> Event:
        self.at = max(self.at, change.at)
        return ApprovalWanted(
            change.approval_id,
            change.call_id,
            change.command,
            change.description,
            change.patterns,
            change.allow_permanent,
            change.seconds,
            change.at,
        )

    def _answer(self, change: ApprovalResolved) -> Event:
        self.at = max(self.at, change.at)
        return ApprovalAnswered(change.approval_id, change.choice, change.by, change.at)

    def _start(self, change: CallStarted) -> Event:
        self._starts[change.call_id] = change.at
        self.at = max(self.at, change.at)
        return ToolStarted(change.call_id, change.name, change.args, change.at)

    def _end(self, change: CallEnded) -> Event:
        at = self._starts[change.call_id] + change.duration
        self.at = max(self.at, at)
        return ToolCompleted(change.call_id, change.result, change.is_error, at)
