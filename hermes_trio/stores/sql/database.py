"""The interface of a database engine, and the pool of threads that read from it.

Jobs are functions of a connection. They block, and run in worker threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Protocol, TypeVar, runtime_checkable

import trio
from attrs import frozen

from hermes_trio.stores.base import CorruptRecord, StoreError

T = TypeVar("T")

CLOSED = "the store is closed"

Parameters = Sequence[Any] | Mapping[str, Any]


class SqlCursor(Protocol):
    """The result of a statement, as ``sqlite3`` has it."""

    @property
    def rowcount(self) -> int:
        """Number of rows that the statement changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the remaining rows."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Return the remaining rows, one after the other."""
        ...

    def close(self) -> None:
        """Discard the remaining rows."""
        ...


class SqlConnection(Protocol):
    """A connection, as ``sqlite3`` has it without transactions of its own."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and not ended, even if it can only be rolled back."""
        ...

    def execute(self, sql: str, parameters: Parameters = (), /) -> SqlCursor:
        """Execute one statement with ``?`` or ``:name`` for its parameters."""
        ...

    def executemany(self, sql: str, parameters: Any, /) -> SqlCursor:
        """Execute one statement for each of the parameters."""
        ...


@runtime_checkable
class PipelinedConnection(Protocol):
    """A connection that can send statements without waiting for the results of earlier ones."""

    def execute_each(self, sql: str, rows: Sequence[Mapping[str, Any]], /) -> list[int]:
        """Execute a statement for each row; return how many rows each changed."""
        ...


def execute_each(
    connection: SqlConnection, sql: str, rows: Sequence[Mapping[str, Any]]
) -> list[int]:
    """Execute a statement for each row of parameters; return how many rows each changed."""
    if isinstance(connection, PipelinedConnection):
        return connection.execute_each(sql, rows)
    return [connection.execute(sql, row).rowcount for row in rows]


Job = Callable[[SqlConnection], Any]

PROBE_BYTES = 250_000
"""Room that a database must have to count as working again after a failure."""


@runtime_checkable
class GroupedJob(Protocol):
    """A job that is cheaper together with others of its class."""

    @staticmethod
    def run_together(connection: SqlConnection, jobs: Sequence[Any]) -> Sequence[Any]:
        """Do what the jobs would do one after the other, and return their values."""
        ...


@frozen
class JobResult:
    """The return value of a job, or the error that it or its transaction failed with."""

    value: Any = None
    error: StoreError | None = None

    def get(self) -> Any:
        """Return the value of the job.

        Raises:
            StoreError: The job or its transaction failed. Always a new object: several callers may
                receive the same failure.
        """
        if self.error is not None:
            raise type(self.error)(*self.error.args) from self.error.__cause__ or self.error
        return self.value


class Database(Protocol):
    """An open database. Everything blocks; the calls may come from any thread."""

    space_probe: Sequence[Job]
    """Jobs that succeed, one transaction each, if there is room for ``PROBE_BYTES``; they leave nothing."""

    def write(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Run jobs in one transaction, each as a whole or not at all; never raise an ``Exception``.

        Called by one thread at a time.
        """
        ...

    def read(self, job: Callable[[SqlConnection], T]) -> T:
        """Run a job that only reads. All its statements see the same state of the database.

        Raises:
            StoreError: The database could not be read.
        """
        ...

    def close(self) -> None:
        """Close every connection, once no job runs any more."""
        ...


def run_transaction(
    connection: SqlConnection, jobs: Sequence[Job], to_error: Callable[[Exception], StoreError]
) -> list[JobResult]:
    """Run the jobs without savepoints, which nearly always works.

    If one fails, run each in its own savepoint. Raises what ended the transaction as a whole.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        results = _run_jobs(connection, jobs)
        connection.execute("COMMIT")  # may raise the error of an earlier statement
    except Exception:
        if not connection.in_transaction:
            raise  # the failure ended the transaction
        results = []
    if not results:  # not in the handler: the traceback there may keep a statement open
        connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        results = [_run_in_savepoint(connection, job, to_error) for job in jobs]
        connection.execute("COMMIT")
    return results


def _run_jobs(connection: SqlConnection, jobs: Sequence[Job]) -> list[JobResult]:
    results: list[JobResult] = []
    for kind, group in groupby(jobs, type):
        if issubclass(kind, GroupedJob):
            results += [JobResult(value) for value in kind.run_together(connection, [*group])]
        else:
            results += [JobResult(job(connection)) for job in group]
    return results


def _run_in_savepoint(
    connection: SqlConnection, job: Job, to_error: Callable[[Exception], StoreError]
) -> JobResult:
    connection.execute("SAVEPOINT job")
    try:
        value = job(connection)
        connection.execute("RELEASE job")  # may raise the error of an earlier statement
    except Exception as error:
        if not connection.in_transaction:
            raise  # the failure ended the transaction
        connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")
        return JobResult(error=to_error(error))
    return JobResult(value)


class ReaderPool:
    """A bounded number of worker threads that read."""

    def __init__(self, database: Database, threads: int) -> None:
        self._database = database
        self._limiter = trio.CapacityLimiter(threads)
        self._is_closed = False

    async def read(self, job: Callable[[SqlConnection], T]) -> T:
        """Run a job in a worker thread. A cancelled caller returns at once and abandons the thread.

        Raises:
            StoreError: The database could not be read, or the pool is closed.
        """
        return await self.run(partial(self._database.read, job))

    async def run(self, work: Callable[[], T]) -> T:
        """Run something else that uses the database in one of the worker threads; see :meth:`read`."""
        if self._is_closed:
            raise StoreError(CLOSED)
        try:
            return await trio.to_thread.run_sync(
                work, abandon_on_cancel=True, limiter=self._limiter
            )
        except RuntimeError as error:
            if is_thread_exhaustion(error):
                raise no_thread(error) from error
            raise

    async def close(self) -> None:
        """Refuse new reads and wait for running ones, including abandoned threads, which keep their token."""
        self._is_closed = True
        for _ in range(int(self._limiter.total_tokens)):
            await self._limiter.acquire_on_behalf_of(object())


_SQLITE_CORRUPT = 11


def is_damage(error: Exception) -> bool:
    """Return whether an error concerns a stored value, or the page of a file that holds it."""
    code = getattr(error, "sqlite_errorcode", 0)
    return isinstance(error, CorruptRecord) or code & 0xFF == _SQLITE_CORRUPT


def is_thread_exhaustion(error: RuntimeError) -> bool:
    """Return whether the system refused to start a thread.

    The interpreter says so only in the message.
    """
    return "can't start new thread" in str(error)


def no_thread(error: RuntimeError) -> StoreError:
    """Translate the failure to start a thread."""
    return StoreError(f"the store could not start a thread ({error})")
