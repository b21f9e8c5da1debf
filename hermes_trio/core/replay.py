"""Rebuild a turn from its log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

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
        """Apply one change. ``Ended`` is ignored: the caller ends the turn."""
        for event in self._events(change):
            self.turn.take(event)

    def _events(self, change: Change) -> Iterable[Event]:
        match change:
            case CallEnded() if change.state is not CallState.COMPLETED:
                return  # closed by the end of the turn: ending it again repeats this change
            case ApprovalResolved() if change.by is AnsweredBy.RUN_ENDED:
                return
            case Ended():
                return
            case _:
                yield self._EVENTS[type(change)](self, change)

    def _text(self, change: TextAdded) -> Event:
        return Text(change.text)

    def _reasoning(self, change: ReasoningAdded) -> Event:
        return Reasoning(change.text)

    def _output(self, change: ToolOutputAdded) -> Event:
        return ToolOutput(change.call_id, change.text)

    def _client_call(self, change: ClientToolCalled) -> Event:
        return ClientCall(change.call_id, change.name, change.arguments)

    def _request(self, change: ApprovalRequested) -> Event:
        self.at = max(self.at, change.at)
        return ApprovalRequest(
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

    _EVENTS: ClassVar[Mapping[type[Change], Callable[[ReplayedTurn, Any], Event]]] = {
        TextAdded: _text,
        ReasoningAdded: _reasoning,
        CallStarted: _start,
        ToolOutputAdded: _output,
        CallEnded: _end,
        ClientToolCalled: _client_call,
        ApprovalRequested: _request,
        ApprovalResolved: _answer,
    }
