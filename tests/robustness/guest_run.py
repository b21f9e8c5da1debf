"""Trio as a guest of a test that is not asynchronous.

Each step of the test lets it run until all tasks wait.

Hypothesis calls the rules of a state machine one by one, from outside. So Trio runs in its guest
mode, the test is its host, and a rule that wants something done in Trio hands over an async
function and drives the loop until it is done.
"""

from __future__ import annotations

import queue
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import outcome
import trio
from trio.testing import MockClock

T = TypeVar("T")
TIMEOUT = 20.0  # real seconds in which something must happen


class GuestRun:
    """A Trio run that goes on only while somebody asks for something."""

    def __init__(self) -> None:
        self.clock = MockClock()
        self._todo: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._ended: list[outcome.Outcome[None]] = []
        self._send, self._jobs = trio.open_memory_channel[Callable[[], Awaitable[None]]](1)
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._todo.put,
            done_callback=self._ended.append,
            clock=self.clock,
            host_uses_signal_set_wakeup_fd=False,
        )

    def call(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run an async function in Trio; returns what it returns, or raises what it raises."""
        results: list[outcome.Outcome[T]] = []

        async def job() -> None:
            results.append(await outcome.acapture(work, *args))

        self._soon(lambda: self._send.send_nowait(job))
        self._drive(lambda: bool(results))
        return results[0].unwrap()

    def close(self) -> None:
        """Let Trio end, with everything in it."""
        self._soon(self._send.close)
        self._drive(lambda: bool(self._ended))
        self._ended[0].unwrap()

    async def _main(self) -> None:
        async with self._jobs:
            async for job in self._jobs:
                await job()

    def _soon(self, action: Callable[[], object]) -> None:
        self._todo.put(action)

    def _drive(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self._todo.get(timeout=TIMEOUT)()
