"""How a request is ended: from outside, and by a fault of our own."""

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
from hermes_trio.web.sse import StreamBody
from tests.robustness.judging import STRICT, Leeway
from tests.robustness.scenes import LIMITS, SHORT, Scene
from tests.robustness.witness import Bug, House

# -- from outside --


@frozen
class Way:
    """How a request is ended. Other ends than that of the script must have one of these reasons."""

    name: str
    strike: Callable[[Scene], None]
    reasons: frozenset[Reason]
    limits: RunLimits = LIMITS
    leeway: Leeway = STRICT
    then: tuple[Callable[[Scene], None], ...] = ()  # what follows a few steps later


def _disconnect(scene: Scene) -> None:
    if scene.exchange is not None:
        scene.exchange.disconnect()


def _stall(scene: Scene) -> None:
    if scene.exchange is not None:
        scene.exchange.stall()


def _cancel_owner(scene: Scene) -> None:
    if scene.scope is not None:
        scene.scope.cancel()


def _stop(scene: Scene) -> None:
    scene.house.harness.state.services.registry.stop_all(Reason.STOP_REQUESTED)


def _drain(scene: Scene) -> None:
    scene.house.harness.state.admission.is_draining = True
    scene.house.harness.state.services.registry.stop_all(Reason.SERVER_SHUTDOWN)


def _freeze(scene: Scene) -> None:
    """The process is stopped for an hour, so that everything that has a deadline is late at once."""
    scene.clock.jump(3_600.0)


def _time_passes(scene: Scene) -> None:
    scene.clock.jump(SHORT.run)


_GONE, _STALLED = Reason.CLIENT_DISCONNECTED, Reason.STALLED_READER
_STOPPED, _SHUT, _LATE = Reason.STOP_REQUESTED, Reason.SERVER_SHUTDOWN, Reason.SERVER_ERROR
_SLOW = Leeway(record=True, order=True)

WAYS = (
    Way("disconnect", _disconnect, frozenset({_GONE})),
    Way("owner cancelled", _cancel_owner, frozenset({_GONE})),
    Way("stalled reader", _stall, frozenset({_STALLED, _GONE})),
    Way("stop", _stop, frozenset({_STOPPED})),
    Way("drain", _drain, frozenset({_SHUT})),
    Way("time limit", _time_passes, frozenset({Reason.TIMEOUT}), SHORT),
    Way("frozen for an hour", _freeze, frozenset({_LATE, _STALLED}), leeway=_SLOW),
    Way("disconnect, then frozen", _disconnect, frozenset({_GONE, _LATE, _STALLED}), leeway=_SLOW, then=(_freeze,)),
    Way("stop, then disconnect", _stop, frozenset({_STOPPED, _GONE}), then=(_disconnect,)),
    Way("disconnect, then drain", _disconnect, frozenset({_GONE, _SHUT}), then=(_drain,)),
    Way("stalled, then cancelled", _stall, frozenset({_STALLED, _GONE}), then=(_cancel_owner,)),
)  # fmt: skip


# -- by a fault of our own --


class Fuse:
    """Fails at the so-manieth use."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.uses = 0

    def burn(self) -> None:
        """One more use."""
        self.uses += 1
        if self.uses == self._at:
            raise Bug


@frozen
class Crash:
    """A part that fails at its n-th use."""

    name: str
    arm: Callable[[ExitStack, House, int], Callable[[], int]]  # returns how often it was used
    reasons: frozenset[Reason]  # how runs may end, beside the end of their script
    leeway: Leeway = STRICT


def _break_tracker(stack: ExitStack, house: House, at: int) -> Callable[[], int]:
    fuse = Fuse(at)

    class BrokenTurn(Turn):
        def take(self, event: Any) -> Any:
            fuse.burn()
            return super().take(event)

    stack.enter_context(pytest.MonkeyPatch.context()).setattr(tracker, "Turn", BrokenTurn)
    return lambda: fuse.uses


def _break_dialect(stack: ExitStack, house: House, at: int) -> Callable[[], int]:
    fuse, render = Fuse(at), StreamBody._render

    def broken(body: StreamBody, changes: Any) -> bytes:
        fuse.burn()
        return render(body, changes)

    stack.enter_context(pytest.MonkeyPatch.context()).setattr(StreamBody, "_render", broken)
    return lambda: fuse.uses


def _break_store(
    error: Exception, lasting: int, stack: ExitStack, house: House, at: int
) -> Callable[[], int]:
    house.store.break_at(at, error, lasting)
    return lambda: house.store.calls


_FAILED = frozenset({Reason.SERVER_ERROR})
_LEFT = frozenset({Reason.SERVER_ERROR, Reason.CLIENT_DISCONNECTED})
_UNSTORED = Leeway(record=True, order=True)
CRASHES = (
    Crash("tracker crash", _break_tracker, _FAILED, Leeway(text=True)),
    Crash("dialect crash", _break_dialect, _LEFT),
    Crash("store failure", partial(_break_store, StoreError("the disk is full"), 1), _FAILED, _UNSTORED),
    Crash("store outage", partial(_break_store, StoreError("the disk is full"), 5), _FAILED, _UNSTORED),
    Crash("store crash", partial(_break_store, Bug(), 1), _FAILED, _UNSTORED),
    Crash("store crash, lasting", partial(_break_store, Bug(), 5), _FAILED, _UNSTORED),
)  # fmt: skip
