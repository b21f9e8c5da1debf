"""From a log back to the turn that wrote it."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_trio.core.changes import (
    CallEnded,
    CallSaid,
    CallStarted,
    Change,
    ReasoningAdded,
    TextAdded,
)
from hermes_trio.core.events import Event, Reasoning, Text, ToolCompleted, ToolOutput, ToolStarted
from hermes_trio.core.lifecycle import CallState
from hermes_trio.core.turn import Turn


class Rebuilt:
    """A turn fed from its own changes. What the turn had filtered is not in the log, so nothing is filtered twice."""

    def __init__(self, changes: Iterable[Change] = ()) -> None:
        self.turn = Turn()
        self.at = 0.0  # the latest moment that the log knows
        self._starts: dict[str, float] = {}
        for change in changes:
            self.take(change)

    def take(self, change: Change) -> None:
        """One more change. The end is left to whoever ends the turn."""
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
            case _:
                pass  # cancelled calls and the end come again when the turn is ended again

    def _start(self, change: CallStarted) -> Event:
        self._starts[change.call_id] = change.at
        self.at = max(self.at, change.at)
        return ToolStarted(change.call_id, change.name, change.args, change.at)

    def _end(self, change: CallEnded) -> Event:
        at = self._starts[change.call_id] + change.duration
        self.at = max(self.at, at)
        return ToolCompleted(change.call_id, change.result, change.is_error, at)
