"""Rebuild a turn from its log."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import asdict

from hermes_trio.core.changes import (
    ApprovalRequested,
    ApprovalResolved,
    CallEnded,
    CallStarted,
    Change,
    ClientToolCalled,
    ReasoningAdded,
    TextAdded,
    ToolOutputAdded,
)
from hermes_trio.core.events import (
    AnsweredBy,
    ApprovalAnswered,
    ApprovalRequest,
    ClientCall,
    Event,
    Reasoning,
    Text,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
)
from hermes_trio.core.state import CallState
from hermes_trio.core.turn import Turn


class ReplayedTurn:
    """A turn fed with the changes it once reported, so that it reaches the same state."""

    def __init__(self, changes: Iterable[Change] = ()) -> None:
        self.turn = Turn()
        self.at = 0.0  # the latest time in the log
        self._starts: dict[str, float] = {}
        for change in changes:
            self.take(change)

    def take(self, change: Change) -> None:
        """Apply one change.

        What the end of the turn caused is ignored: ending it again repeats those changes.
        """
        if type(change) is TextAdded:  # by far the most frequent change
            self.turn.take(Text(change.text))
            return
        event = self._event(change)
        if event is not None:
            self.at = max(self.at, getattr(event, "at", 0.0))
            self.turn.take(event)

    def _event(self, change: Change) -> Event | None:
        """Return the event that caused a change, None if the end of the turn did."""
        event: Event | None = None
        match change:
            case ReasoningAdded():
                event = Reasoning(change.text)
            case CallStarted():
                self._starts[change.call_id] = change.at
                event = ToolStarted(change.call_id, change.name, change.args, change.at)
            case ToolOutputAdded():
                event = ToolOutput(change.call_id, change.text)
            case CallEnded() if change.state is CallState.COMPLETED:
                at = self._starts[change.call_id] + change.duration
                event = ToolCompleted(change.call_id, change.result, change.is_error, at)
            case ClientToolCalled():
                event = ClientCall(change.call_id, change.name, change.arguments)
            case ApprovalRequested():
                event = ApprovalRequest(**asdict(change, recurse=False))
            case ApprovalResolved() if change.by is not AnsweredBy.RUN_ENDED:
                event = ApprovalAnswered(change.approval_id, change.choice, change.by, change.at)
            case _:
                pass  # caused by the end of the turn
        return event
