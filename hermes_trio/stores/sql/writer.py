"""Group commit: many callers, one transaction for everything that is pending.

A commit costs a disk flush whether it holds one job or a hundred. Callers therefore put their jobs
in a bounded queue and wait. One task takes everything in the queue, runs it in one transaction in a
worker thread, and wakes each caller after the commit with the result of its own job. The next batch
collects while the disk is busy, so batches grow with the load, while a single caller never waits
for others.

A full queue blocks its callers, which is the store's only back-pressure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TypeVar

import trio
from attrs import define, field

from hermes_trio.stores.base import StoreError
from hermes_trio.stores.sql.database import (
    CLOSED,
    Database,
    Job,
    JobResult,
    SqlConnection,
    no_thread,
)

T = TypeVar("T")

MAX_GATHER_TURNS = 8
"""Scheduler turns that a batch may wait for more jobs to arrive."""

_ABANDONED = (
    "the store was closed before the disk answered; the change may or may not have been saved"
)


@define(eq=False)
class _PendingJob:
    job: Job
    done: trio.Event = field(factory=trio.Event)
    result: JobResult = field(factory=JobResult)

    def finish(self, result: JobResult) -> None:
        self.result = result
        self.done.set()


class Writer:
    """Runs every write of a store. :meth:`run` is its task.

    It returns once the writer is closed and idle.
    """

    def __init__(self, database: Database, max_pending: int, max_batch: int) -> None:
        self._database = database
        self._max_batch = max_batch
        self._limiter = trio.CapacityLimiter(1)
        self._send, self._receive = trio.open_memory_channel[_PendingJob](max_pending)
        # When the owner is cancelled, callers may still have final records to save; only abandon()
        # stops the task.
        self._scope = trio.CancelScope(shield=True)
        self._ended = trio.Event()
        self._batch: Sequence[_PendingJob] = ()
        self._is_busy = False  # the last batch held several jobs
        self.commits = 0  # transactions so far, including failed ones
        self.failures = 0  # transactions in which a job failed

    async def submit(self, job: Callable[[SqlConnection], T]) -> T:
        """Run a job in the next transaction, and return its value once that has been committed.

        A caller cancelled while waiting leaves its job in the queue; one already cancelled submits
        nothing.

        Raises:
            StoreError: The job or its transaction failed, or the writer is closed.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        pending = _PendingJob(job)
        try:
            try:
                # The caller waits for the disk anyway, so it need not yield first.
                self._send.send_nowait(pending)
            except trio.WouldBlock:
                await self._send.send(pending)
        except trio.ClosedResourceError:
            raise StoreError(CLOSED) from None
        await pending.done.wait()
        return pending.result.get()  # type: ignore[no-any-return]  # one queue for jobs of all types

    async def close(self) -> None:
        """Refuse new jobs, and return once the accepted ones are done."""
        self._send.close()
        await self._ended.wait()

    def abandon(self) -> None:
        """Stop waiting for a thread that does not return from the disk.

        Its callers get an error.
        """
        self._scope.cancel(_ABANDONED)

    async def run(self) -> None:
        """Commit batch after batch until closed."""
        try:
            with self._scope:
                async for first in self._receive:
                    self._batch = (first,)
                    await self._gather()
                    await self._commit((first, *islice(self._take_pending(), self._max_batch - 1)))
            for pending in (*self._batch, *self._take_pending()):  # empty unless abandoned
                pending.finish(JobResult(error=StoreError(_ABANDONED)))
        finally:
            self._receive.close()
            self._ended.set()

    async def _gather(self) -> None:
        """Under load, yield while jobs keep arriving.

        A commit of ten hardly costs more than a commit of one.
        """
        before, turns = -1, MAX_GATHER_TURNS if self._is_busy else 0
        while turns and before < (before := self._receive.statistics().current_buffer_used):
            await trio.lowlevel.checkpoint()
            turns -= 1

    def _take_pending(self) -> Iterator[_PendingJob]:
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while True:
                yield self._receive.receive_nowait()

    async def _commit(self, batch: Sequence[_PendingJob]) -> None:
        self._batch = batch
        jobs = [pending.job for pending in batch]
        try:
            # Only abandon() reaches through the shield, so only it can leave the thread behind.
            results = await trio.to_thread.run_sync(
                self._database.write, jobs, abandon_on_cancel=True, limiter=self._limiter
            )
        except RuntimeError as error:  # no thread could be started, which must not end the writer
            results = [JobResult(error=no_thread(error))] * len(jobs)
        self._batch, self._is_busy = (), len(batch) > 1
        self.commits += 1
        self.failures += any(result.error is not None for result in results)
        for pending, result in zip(batch, results, strict=True):
            pending.finish(result)
