"""The end of a server: stop admission, wait for running runs, stop the rest, flush their last frames, close.

The first signal starts the drain, the second ends it. Should even that not end the process, a
watchdog thread does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog
import trio
from attrs import frozen

from hermes_trio.core.outcome import Reason
from hermes_trio.settings import Settings

if TYPE_CHECKING:
    # A supervisor of workers uses this module and does without what a server imports.
    from hermes_trio.bootstrap import Server

log = structlog.get_logger(__name__)


@frozen
class ShutdownTimeouts:
    """How long each step of a shutdown may take, in seconds."""

    drain: float = 20.0  # for running runs to end by themselves
    flush: float = 3.0  # for clients to read the last frames of the runs that were stopped
    stop: float = 16.0  # for agents to stop and for records to be saved
    close: float = 10.0  # for connections and the store

    @classmethod
    def from_settings(cls, settings: Settings) -> ShutdownTimeouts:
        """Return the timeouts that the settings ask for."""
        return cls(drain=settings.drain_seconds, stop=settings.interrupt_grace_seconds + 11)

    @property
    def total(self) -> float:
        """After this much the shutdown hangs."""
        return self.drain + self.stop + self.close


def start_watchdog(seconds: float) -> None:
    """End the process from a thread if it is still there after `seconds`."""
    timer = threading.Timer(seconds, _exit_hung)
    timer.daemon = True
    timer.start()


def _exit_hung() -> None:
    log.critical("the shutdown hangs: leaving without it")
    os._exit(1)


class Shutdown:
    """Ends the runs of a server in order.

    Args:
        server: The server.
        timeouts: For each step.
        limit_writes: Lets every write to a client end by a deadline.
        watchdog: Called with the seconds after which the process must have ended.
    """

    def __init__(
        self,
        server: Server,
        timeouts: ShutdownTimeouts,
        limit_writes: Callable[[float], None],
        watchdog: Callable[[float], None] = start_watchdog,
    ) -> None:
        self._server, self._timeouts = server, timeouts
        self._limit_writes, self._watchdog = limit_writes, watchdog
        self._requested, self._forced = trio.Event(), trio.Event()

    def request(self, source: str) -> None:
        """Start the shutdown; a second request ends the drain."""
        if self._requested.is_set():
            log.warning("asked again to stop: ending all runs now", by=source)
            self._forced.set()
        else:
            log.info("stopping", by=source, active_runs=len(self._server.registry))
            self._requested.set()

    async def run(self) -> None:
        """Wait for a request, then return when no run is live or the timeouts have passed."""
        await self._requested.wait()
        self._watchdog(self._timeouts.total)
        self._server.admission.is_draining = True
        self._server.admission.drain_deadline = trio.current_time() + self._timeouts.drain
        self._server.readiness.not_ready = "draining"
        with trio.move_on_after(self._timeouts.drain):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._cancel_when_forced, nursery.cancel_scope)
                await self._server.registry.wait_empty()
                nursery.cancel_scope.cancel()
        self._server.registry.stop_all(Reason.SERVER_SHUTDOWN)
        # A run waits until its reader has taken the end; one that does not read must not hold up
        # the others.
        self._limit_writes(trio.current_time() + self._timeouts.flush)
        with trio.move_on_after(self._timeouts.stop):
            await self._server.registry.wait_empty()
        self._server.state.log_feed.close()

    async def _cancel_when_forced(self, scope: trio.CancelScope) -> None:
        await self._forced.wait()
        self._server.admission.drain_deadline = trio.current_time()
        scope.cancel()
