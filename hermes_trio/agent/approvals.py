"""The approval requests of a run that wait for a decision.

An agent asks from any thread or from a Trio task; decisions come from the Trio thread. When the run
ends, every request that is still open fails with :class:`RunEnded`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

import trio

from hermes_trio.agent.event_queue import RunEnded
from hermes_trio.core.approvals import Decision


class ApprovalFuture:
    """The decision on one approval request, once there is one."""

    def __init__(self) -> None:
        self._decision: Future[Decision] = Future()

    def resolve(self, decision: Decision) -> None:
        """Set the decision, and wake what waits for it."""
        self._decision.set_result(decision)

    def cancel(self) -> None:
        """Make every ``wait`` raise ``RunEnded``."""
        self._decision.set_exception(RunEnded())

    def wait(self) -> Decision:
        """Return the decision; blocks the calling thread until there is one.

        Raises:
            RunEnded: the run is over.
        """
        return self._decision.result()

    async def wait_async(self) -> Decision:
        """Return the decision, for Trio tasks.

        Raises:
            RunEnded: the run is over.
        """
        done = trio.Event()
        self.add_done_callback(done.set)
        await done.wait()
        return self._decision.result()

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call back once ``wait`` would not block: at once, or later from the Trio thread."""
        self._decision.add_done_callback(lambda _: callback())


class PendingApprovals:
    """The open approval requests of one run, by id. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[str, ApprovalFuture] = {}
        self._is_closed = False

    def open(self, approval_id: str) -> ApprovalFuture:
        """Register a request.

        Call this before the request is emitted: the decision may come at once.

        Raises:
            RunEnded: the run is over.
        """
        with self._lock:
            if self._is_closed:
                raise RunEnded
            future = self._futures[approval_id] = ApprovalFuture()
            return future

    def resolve(self, approval_id: str, decision: Decision) -> None:
        """Decide on a request. Does nothing if the request is not open any more."""
        with self._lock, suppress(KeyError):
            self._futures.pop(approval_id).resolve(decision)

    def close(self) -> None:
        """End the run: cancel every open request, and refuse new ones."""
        with self._lock:
            self._is_closed = True
            while self._futures:
                self._futures.popitem()[1].cancel()
