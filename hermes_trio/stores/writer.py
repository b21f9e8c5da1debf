"""Group commit: many callers, one connection, one transaction for all that waits.

A commit costs a disk flush whether it holds one job or a hundred. So callers leave their job in a bounded queue and
wait. One task takes everything that is there, runs it in one transaction in a worker thread, and only after the
commit wakes each caller with what became of its own job. While the disk is busy the next batch gathers by itself, and if the last one
had gathered, for as long as every turn of the loop brings more: under load batches grow, and a lone caller never waits for company.

A full queue holds its callers back; that is the only backpressure and needs no other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

import trio
from attrs import define, field, frozen

from hermes_trio.stores.base import StoreError
from hermes_trio.stores.faults import CLOSED, explained, kind

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]

TURNS = 8
"""How many turns of the loop a batch may wait for company."""

_CUT_OFF = "the store was closed before the disk answered; what was asked may or may not be saved"


@frozen
class Outcome:
    """What became of a job."""

    value: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        """What the job returned.

        Raises:
            StoreError: it failed, or its transaction did.
        """
        if self.error is not None:
            raise explained(self.error) from self.error
        return self.value


@define(eq=False)
class _Job:
    work: Work
    done: trio.Event = field(factory=trio.Event)
    outcome: Outcome = Outcome()

    def finish(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.done.set()


class Writer:
    """The only one who writes. :meth:`run` is its task; it ends when the writer is closed and all is done."""

    def __init__(self, connection: sqlite3.Connection, pending: int, batch: int) -> None:
        self._connection = connection
        self._batch_size = batch
        self._limiter = trio.CapacityLimiter(1)
        self._send, self._receive = trio.open_memory_channel[_Job](pending)
        # Whoever cancels the owner may still have callers that save their last words: only abandon() stops us.
        self._scope = trio.CancelScope(shield=True)
        self._ended = trio.Event()
        self._batch: Sequence[_Job] = ()
        self._had_company = False
        self.commits = 0  # transactions so far, those that failed included

    async def submit(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job in the next transaction and return what it returned, once that is committed.

        A caller that is cancelled while it waits leaves its job in the queue; one that was cancelled before asks for nothing.

        Raises:
            StoreError: the job failed, or its transaction did, or the writer is closed.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        job = _Job(work)
        try:
            await self._queue(job)
        except trio.ClosedResourceError:
            raise StoreError(CLOSED) from None
        await job.done.wait()
        return job.outcome.get()  # type: ignore[no-any-return]  # one queue for jobs of all types

    async def _queue(self, job: _Job) -> None:
        """Nearly always there is a place, and then nobody else need have a turn first: the disk is waited for anyway."""
        try:
            self._send.send_nowait(job)
        except trio.WouldBlock:
            await self._send.send(job)

    async def close(self) -> None:
        """Take no more jobs, and return when those already taken are done."""
        self._send.close()
        await self._ended.wait()

    def abandon(self) -> None:
        """Wait no longer for a thread that does not come back from the disk."""
        self._scope.cancel(_CUT_OFF)

    async def run(self) -> None:
        """Commit batch after batch until closed."""
        try:
            with self._scope:
                async for first in self._receive:
                    self._batch = (first,)
                    await self._gather()
                    await self._commit((first, *islice(self._waiting(), self._batch_size - 1)))
            for job in (*self._batch, *self._waiting()):  # some only when abandoned
                job.finish(Outcome(error=StoreError(_CUT_OFF)))
        finally:
            self._receive.close()
            self._ended.set()

    async def _gather(self) -> None:
        """If the last one had company, so has this one, in a turn of the loop: a commit for ten is hardly dearer than one."""
        before, turns = -1, TURNS if self._had_company else 0
        while turns and before < (before := self._receive.statistics().current_buffer_used):
            await trio.lowlevel.checkpoint()
            turns -= 1

    def _waiting(self) -> Iterator[_Job]:
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while True:
                yield self._receive.receive_nowait()

    async def _commit(self, batch: Sequence[_Job]) -> None:
        self._batch = batch
        outcomes = await self._run([job.work for job in batch])
        self._batch, self._had_company = (), len(batch) > 1
        self.commits += 1
        for job, outcome in zip(batch, outcomes, strict=True):
            job.finish(outcome)

    async def _run(self, works: Sequence[Work]) -> list[Outcome]:
        try:
            # Only abandon() reaches through the shield, so only it can leave the thread behind.
            return await trio.to_thread.run_sync(
                run_batch, self._connection, works, abandon_on_cancel=True, limiter=self._limiter
            )
        except RuntimeError as error:  # no thread could be started: that must not end the writer
            return [Outcome(error=error)] * len(works)


def run_batch(connection: sqlite3.Connection, works: Sequence[Work]) -> list[Outcome]:
    """Run jobs in one transaction; say for each what became of it."""
    try:
        return _transaction(connection, works)
    except Exception as error:  # noqa: BLE001  # whatever it is, it belongs to the callers and must not end the writer
        _roll_back(connection)
        if kind(error) == sqlite3.SQLITE_FULL and len(works) > 1:
            # SQLite drops the whole transaction here. One large job must not take along those that would still fit.
            return [outcome for work in works for outcome in run_batch(connection, [work])]
        return [Outcome(error=error)] * len(works)


def _transaction(connection: sqlite3.Connection, works: Sequence[Work]) -> list[Outcome]:
    """All of them as one, which is nearly always well. Else again, each so that it fails alone."""
    connection.execute("BEGIN IMMEDIATE")
    outcomes = _all_at_once(connection, works)
    if not outcomes:
        connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        outcomes = [_attempt(connection, work) for work in works]
    connection.execute("COMMIT")
    return outcomes


def _all_at_once(connection: sqlite3.Connection, works: Sequence[Work]) -> list[Outcome]:
    """What became of all jobs, if all are well; nothing if one is not."""
    try:
        return [Outcome(work(connection)) for work in works]
    except Exception:
        if not connection.in_transaction:
            raise  # the fault was bad enough to end the transaction of all
        return []


def _attempt(connection: sqlite3.Connection, work: Work) -> Outcome:
    connection.execute("SAVEPOINT job")
    try:
        value = work(connection)
    except Exception as error:
        if not connection.in_transaction:
            raise  # the fault was bad enough to end the transaction of all
        connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")
        return Outcome(error=error)
    connection.execute("RELEASE job")
    return Outcome(value)


def _roll_back(connection: sqlite3.Connection) -> None:
    # A failure here is the same fault again; the next BEGIN tells whether it is over.
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
