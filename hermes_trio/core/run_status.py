"""The status of a run, folded from its changes.

The one state machine behind every status a client sees.
"""

from __future__ import annotations

from attrs import frozen

from hermes_trio.core.changes import ApprovalRequested, ApprovalResolved, Change, Ended
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.state import RunState, RunTransition, next_run_state

# The agent itself ended the turn, without an error but unfinished.
_COMPLETED_REASONS = frozenset({Reason.MAX_OUTPUT_TOKENS, Reason.AGENT_INCOMPLETE})

_BY_STATUS = {
    Status.COMPLETED: RunTransition.COMPLETE,
    Status.CANCELLED: RunTransition.CANCEL,
    Status.INCOMPLETE: RunTransition.FAIL,
    Status.FAILED: RunTransition.FAIL,
}


def final_transition(outcome: Outcome) -> RunTransition:
    """Return the transition that ends a run, in the terms of the Runs API.

    A run that its agent ended without an error is completed, even if the answer is unfinished. A
    run that was stopped, or whose client left, is cancelled. Everything else (errors, a time limit,
    a shutdown, a process that died) is a failure.
    """
    if outcome.reason in _COMPLETED_REASONS:
        return RunTransition.COMPLETE
    if outcome.reason is Reason.CLIENT_DISCONNECTED:  # the stop button of most front ends
        return RunTransition.CANCEL
    return _BY_STATUS[outcome.status]


@frozen
class RunStatus:
    """A run's state at one moment."""

    state: RunState = RunState.QUEUED
    open_approvals: tuple[ApprovalRequested, ...] = ()  # unanswered requests, oldest first


class RunStateMachine:
    """Tracks the status of one run: changes in, status out."""

    def __init__(self) -> None:
        self._state = RunState.QUEUED
        self._open_approvals: dict[str, ApprovalRequested] = {}

    @property
    def status(self) -> RunStatus:
        """The current status, as a value."""
        return RunStatus(self._state, tuple(self._open_approvals.values()))

    def begin(self) -> None:
        """Record that the agent has started."""
        self._state = next_run_state(self._state, RunTransition.BEGIN)

    def stop(self) -> None:
        """Record that a client or the server asked the run to stop."""
        self._state = next_run_state(self._state, RunTransition.STOP)

    def take(self, change: Change) -> None:
        """Apply one change."""
        match change:
            case Ended(outcome):
                self._state = next_run_state(self._state, final_transition(outcome))
            case ApprovalRequested(approval_id):
                self._open_approvals[approval_id] = change
                self._state = next_run_state(self._state, RunTransition.ASK)
            case ApprovalResolved(approval_id):
                del self._open_approvals[approval_id]
                if not self._open_approvals:
                    self._state = next_run_state(self._state, RunTransition.ANSWER)
            case _:
                pass
