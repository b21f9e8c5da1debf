"""The status of a run, folded from its changes."""

from __future__ import annotations

from hypothesis import given

from hermes_trio.core.changes import ApprovalRequested, ApprovalResolved, Change
from hermes_trio.core.dialects.runs import status_after
from hermes_trio.core.events import (
    AnsweredBy,
    Choice,
    Event,
)
from hermes_trio.core.run_status import RunStateMachine, RunStatus
from hermes_trio.core.state import RunState
from tests.support.strategies import scripts
from tests.support.turn_rules import played

REQUEST = ApprovalRequested(
    "q1", "", "rm -r build", "deletes files", ("recursive delete", "rm"), True, 60.0, 1.5
)


RESOLVED = ApprovalResolved("q1", "", Choice.SESSION, AnsweredBy.CLIENT, 2.5)


class TestRunStateMachine:
    def test_from_one_request_to_the_next(self) -> None:
        machine, states = RunStateMachine(), []
        second = ApprovalRequested("q2", "", "y", "", (), True, 1.0, 3.0)
        machine.begin()
        told: list[Change] = [
            REQUEST,
            second,
            RESOLVED,
            ApprovalResolved("q2", "", Choice.DENY, AnsweredBy.TIMEOUT, 4),
        ]
        for change in told:
            machine.take(change)
            states.append(machine.status)
        assert states == [
            RunStatus(RunState.WAITING, (REQUEST,)),
            RunStatus(RunState.WAITING, (REQUEST, second)),
            RunStatus(RunState.WAITING, (second,)),
            RunStatus(RunState.RUNNING, ()),
        ]

    def test_stopping_lasts_until_the_end(self) -> None:
        machine = RunStateMachine()
        machine.stop()
        machine.begin()
        machine.take(REQUEST)
        machine.stop()
        assert machine.status == RunStatus(RunState.STOPPING, (REQUEST,))
        machine.take(RESOLVED)
        assert machine.status == RunStatus(RunState.STOPPING)

    @given(scripts)
    def test_every_script_ends_without_open_requests(self, script: list[Event]) -> None:
        _, changes = played(script)
        for length in range(len(changes)):
            assert status_after(changes[:length]).state in {RunState.RUNNING, RunState.WAITING}
        assert status_after(changes) == RunStatus(RunState.CANCELLED)  # its client left
