"""The end of a server: not ready, no new runs, wait for the running ones, interrupt the rest, go.

The first signal begins the drain, the second ends it at once. Should even that not end the process, a watchdog thread
does: a shutdown that hangs helps nobody.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
import trio
from attrs import frozen

from hermes_trio.compose import Running
from hermes_trio.core.outcome import Reason

log = structlog.get_logger(__name__)


@frozen
class Patience:
    """How long each step of a shutdown may take, in seconds."""

    drain: float = 20.0
    last_words: float = 3.0  # for the last frames to those who still read
    stop: float = 16.0  # grace for the agents and time to save
    rest: float = 10.0  # connections, store

    @property
    def total(self) -> float:
        """After that much, something hangs."""
        return self.drain + self.stop + self.rest


class Shutdown:
    """Turns signals into an orderly end."""

    def __init__(self, running: Running, patience: Patience, limit_writes: Callable[[float], None]) -> None:
        """Take what to end, how patiently, and how to let no write outlast a point in Trio's time."""
        self._running, self._patience, self._limit_writes = running, patience, limit_writes
        self._asked, self._hurried = trio.Event(), trio.Event()

    def ask(self, who: str) -> None:
        """Begin the drain; asked again, end it."""
        if self._asked.is_set():
            log.warning("asked again to stop: ending all runs now", by=who)
            self._hurried.set()
        else:
            log.info("stopping", by=who, active_runs=len(self._running.registry))
            self._asked.set()

    async def run(self) -> None:
        """Return when no run is live any more, or when patience is over."""
        await self._asked.wait()
        with _watchdog(self._patience.total):
            self._close_the_door()
            await self._wait_for_runs(self._patience.drain)
            self._running.registry.stop_all(Reason.SERVER_SHUTDOWN)
            # A run waits for its reader to take the end; one that does not read must not hold up the rest.
            self._limit_writes(trio.current_time() + self._patience.last_words)
            with trio.move_on_after(self._patience.stop):
                await self._running.registry.wait_empty()

    def _close_the_door(self) -> None:
        self._running.admission.is_draining = True
        self._running.state.not_ready = "draining"

    async def _wait_for_runs(self, seconds: float) -> None:
        with trio.move_on_after(seconds) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._cancel_when_hurried, scope)
                await self._running.registry.wait_empty()
                nursery.cancel_scope.cancel()

    async def _cancel_when_hurried(self, scope: trio.CancelScope) -> None:
        await self._hurried.wait()
        scope.cancel()


@contextmanager
def _watchdog(seconds: float) -> Iterator[None]:
    """A thread that ends the process if it is still there after so long. It dies with the process, not before."""
    timer = threading.Timer(seconds, _give_up)
    timer.daemon = True
    timer.start()
    yield


def _give_up() -> None:
    log.critical("the shutdown hangs: leaving without it")
    os._exit(1)
