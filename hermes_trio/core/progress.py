"""Where a run stands, folded from its changes: the one machine behind every status that a client sees."""

from __future__ import annotations

from attrs import frozen

from hermes_trio.core.changes import ApprovalRequested, ApprovalResolved, Change, Ended, TextAdded
from hermes_trio.core.lifecycle import RunMove, RunState, move_run
from hermes_trio.core.outcome import Outcome, Reason, Status

Questions = tuple[ApprovalRequested, ...]

_LAST_WORDS = frozenset(
    {Reason.MAX_OUTPUT_TOKENS, Reason.AGENT_INCOMPLETE}
)  # the agent's own, though unfinished
_BY_STATUS = {
    Status.COMPLETED: RunMove.COMPLETE,
    Status.CANCELLED: RunMove.CANCEL,
    Status.INCOMPLETE: RunMove.FAIL,
    Status.FAILED: RunMove.FAIL,
}


def last_move(outcome: Outcome) -> RunMove:
    """How a run ends in the words of the Runs API.

    Where the agent itself had the last word and it was no failure, the run is completed; what somebody stopped is
    cancelled; all the rest (errors, a time limit, a shutdown, a process that died) is failed.
    """
    return RunMove.COMPLETE if outcome.reason in _LAST_WORDS else _BY_STATUS[outcome.status]


@frozen
class Standing:
    """A run at one moment."""

    state: RunState = RunState.QUEUED
    questions: Questions = ()  # not answered yet, oldest first


class Progress:
    """Changes in, state out."""

    def __init__(self) -> None:
        self._state = RunState.QUEUED
        self._questions: dict[str, ApprovalRequested] = {}

    @property
    def standing(self) -> Standing:
        """As a value."""
        return Standing(self._state, tuple(self._questions.values()))

    def begin(self) -> None:
        """The agent is at work."""
        self._state = move_run(self._state, RunMove.BEGIN)

    def stop(self) -> None:
        """Somebody, or the server, wants the run to end."""
        self._state = move_run(self._state, RunMove.STOP)

    def take(self, change: Change) -> None:
        """One more change."""
        if type(change) is TextAdded:  # most of them are
            return
        match change:
            case Ended(outcome):
                self._state = move_run(self._state, last_move(outcome))
            case ApprovalRequested(approval_id):
                self._questions[approval_id] = change
                self._state = move_run(self._state, RunMove.ASK)
            case ApprovalResolved(approval_id):
                del self._questions[approval_id]
                self._answered()
            case _:
                pass

    def _answered(self) -> None:
        if not self._questions:
            self._state = move_run(self._state, RunMove.ANSWER)
