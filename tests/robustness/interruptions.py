"""Ways to interrupt a request: from outside, or by an internal fault."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from attrs import frozen

from hermes_trio.core.outcome import Reason
from hermes_trio.core.turn import Turn
from hermes_trio.runs import tracker
from hermes_trio.runs.tracker import RunLimits
from hermes_trio.stores.base import StoreError
from hermes_trio.web import sse
from hermes_trio.web.sse import Dialect, StreamBody
from tests.robustness.observed_server import InjectedError, ObservedServer
from tests.robustness.scenario_checks import STRICT, Tolerance
from tests.robustness.scenarios import LIMITS, SHORT, RequestScenario

# -- from outside --


@frozen
class Interruption:
    """A way to interrupt a request.

    Unless the script ended first, the run must end for one of these reasons.
    """

    name: str
    apply: Callable[[RequestScenario], None]
    reasons: frozenset[Reason]
    limits: RunLimits = LIMITS
    tolerance: Tolerance = STRICT
    then: tuple[Callable[[RequestScenario], None], ...] = ()  # what follows a few steps later


def _disconnect(scenario: RequestScenario) -> None:
    if scenario.exchange is not None:
        scenario.exchange.disconnect()


def _stall(scenario: RequestScenario) -> None:
    if scenario.exchange is not None:
        scenario.exchange.stall()


def _cancel_owner(scenario: RequestScenario) -> None:
    if scenario.scope is not None:
        scenario.scope.cancel()


def _stop(scenario: RequestScenario) -> None:
    scenario.server.harness.state.services.registry.stop_all(Reason.STOP_REQUESTED)


def _drain(scenario: RequestScenario) -> None:
    scenario.server.harness.state.admission.is_draining = True
    scenario.server.harness.state.services.registry.stop_all(Reason.SERVER_SHUTDOWN)


def _freeze(scenario: RequestScenario) -> None:
    """Freeze the process for an hour, so that every deadline passes at once."""
    scenario.clock.jump(3_600.0)


def _time_passes(scenario: RequestScenario) -> None:
    scenario.clock.jump(SHORT.run)


_GONE, _STALLED = Reason.CLIENT_DISCONNECTED, Reason.STALLED_READER
_STOPPED, _SHUT, _LATE = Reason.STOP_REQUESTED, Reason.SERVER_SHUTDOWN, Reason.SERVER_ERROR
_SLOW = Tolerance(record=True, order=True)

INTERRUPTIONS = (
    Interruption("disconnect", _disconnect, frozenset({_GONE})),
    Interruption("owner cancelled", _cancel_owner, frozenset({_GONE})),
    Interruption("stalled reader", _stall, frozenset({_STALLED, _GONE})),
    Interruption("stop", _stop, frozenset({_STOPPED})),
    Interruption("drain", _drain, frozenset({_SHUT})),
    Interruption("time limit", _time_passes, frozenset({Reason.TIMEOUT}), SHORT),
    Interruption("frozen for an hour", _freeze, frozenset({_LATE, _STALLED}), tolerance=_SLOW),
    Interruption("disconnect, then frozen", _disconnect, frozenset({_GONE, _LATE, _STALLED}), tolerance=_SLOW, then=(_freeze,)),
    Interruption("stop, then disconnect", _stop, frozenset({_STOPPED, _GONE}), then=(_disconnect,)),
    Interruption("disconnect, then drain", _disconnect, frozenset({_GONE, _SHUT}), then=(_drain,)),
    Interruption("stalled, then cancelled", _stall, frozenset({_STALLED, _GONE}), then=(_cancel_owner,)),
)  # fmt: skip


# -- by an internal fault --


class FailAtUse:
    """Raises at the n-th use."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.uses = 0

    def use(self) -> None:
        """Count a use, and raise at the n-th."""
        self.uses += 1
        if self.uses == self._at:
            raise InjectedError


@frozen
class InternalFault:
    """A part that fails at its n-th use."""

    name: str
    arm: Callable[
        [ExitStack, ObservedServer, int], Callable[[], int]
    ]  # returns how often it was used
    reasons: frozenset[Reason]  # how runs may end, beside the end of their script
    tolerance: Tolerance = STRICT


def _break_tracker(stack: ExitStack, server: ObservedServer, at: int) -> Callable[[], int]:
    failure = FailAtUse(at)

    class BrokenTurn(Turn):
        def take(self, event: Any) -> Any:
            failure.use()
            return super().take(event)

    stack.enter_context(pytest.MonkeyPatch.context()).setattr(tracker, "Turn", BrokenTurn)
    return lambda: failure.uses


def _break_dialect(stack: ExitStack, server: ObservedServer, at: int) -> Callable[[], int]:
    failure = FailAtUse(at)

    class BrokenDialect:
        def __init__(self, dialect: Dialect) -> None:
            self.opening, self._render = dialect.opening, dialect.render

        def render(self, changes: Any) -> bytes:
            failure.use()
            return self._render(changes)

    class BrokenBody(StreamBody):
        def __init__(self, start: Any, dialect: Dialect, *others: Any) -> None:
            super().__init__(start, BrokenDialect(dialect), *others)

    stack.enter_context(pytest.MonkeyPatch.context()).setattr(sse, "StreamBody", BrokenBody)
    return lambda: failure.uses


def _break_store(
    error: Exception, lasting: int, stack: ExitStack, server: ObservedServer, at: int
) -> Callable[[], int]:
    server.store.break_at(at, error, lasting)
    return lambda: server.store.calls


_FAILED = frozenset({Reason.SERVER_ERROR})
_LEFT = frozenset({Reason.SERVER_ERROR, Reason.CLIENT_DISCONNECTED})
_UNSTORED = Tolerance(record=True, order=True)
INTERNAL_FAULTS = (
    InternalFault("tracker crash", _break_tracker, _FAILED, Tolerance(text=True)),
    InternalFault("dialect crash", _break_dialect, _LEFT),
    InternalFault("store failure", partial(_break_store, StoreError("the disk is full"), 1), _FAILED, _UNSTORED),
    InternalFault("store outage", partial(_break_store, StoreError("the disk is full"), 5), _FAILED, _UNSTORED),
    InternalFault("store crash", partial(_break_store, InjectedError(), 1), _FAILED, _UNSTORED),
    InternalFault("store crash, lasting", partial(_break_store, InjectedError(), 5), _FAILED, _UNSTORED),
)  # fmt: skip
