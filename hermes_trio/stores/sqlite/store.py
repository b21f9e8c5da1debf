"""Stores in SQLite: one in a file, and one in memory for trials and tests.

The store in memory is the same on an in-memory database, where no call waits for a disk or needs a
thread. It therefore accepts and returns exactly what the store in a file does. It grows with
everything that is stored, and is lost when it closes.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import trio
from attrs import frozen

from hermes_trio.core.records import PurgeResult, Retention
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.sql.database import CLOSED, SqlConnection
from hermes_trio.stores.sql.store import BaseSqlStore, SqlStore, SqlStoreOptions
from hermes_trio.stores.sqlite.connections import (
    SqliteDatabase,
    open_database,
    return_free_pages,
    run_batch,
)
from hermes_trio.stores.sqlite.schema import migrate

T = TypeVar("T")


# -- in a file --


@frozen
class SqliteOptions(SqlStoreOptions):
    """The limits of an SQLite store."""

    # How long to wait for another program's lock; less than close_seconds.
    busy_seconds: float = 5.0
    is_checked: bool = False  # look for damage when the file is opened, which reads all of it


DEFAULTS = SqliteOptions()

IDLE_SECONDS = 10.0
"""How long the store may go without a write before one is tried."""


class SqliteStore(SqlStore):
    """A :class:`~hermes_trio.stores.base.Store` in a file, opened by :func:`open_sqlite`."""

    _database: SqliteDatabase
    _commits_seen = 0
    _probe_at = 0.0

    async def heartbeat(self) -> None:
        """See :class:`~hermes_trio.stores.base.Heartbeat`.

        Notices a file that is gone or overwritten and a disk without room at once, and within
        ``IDLE_SECONDS`` whatever else makes writes fail, even if nobody writes.
        """
        self._database.check_file()
        self._database.check_disk()
        await super().heartbeat()
        now = trio.current_time()
        if self.commits == self._commits_seen and now >= self._probe_at:
            await self.check()
        if self.commits != self._commits_seen:
            self._commits_seen, self._probe_at = self.commits, now + IDLE_SECONDS

    async def purge(self, retention: Retention, now: float) -> PurgeResult:
        """See the interface. What is freed is returned to the file system."""
        result = await super().purge(retention, now)
        while await self._submit(return_free_pages):
            pass
        return result


@asynccontextmanager
async def open_sqlite(path: Path, options: SqliteOptions = DEFAULTS) -> AsyncIterator[SqliteStore]:
    """Open the store in a file, creating it if necessary, readable by its owner only.

    Leaving the context commits everything accepted so far, even when the task is being cancelled.

    Raises:
        StoreError: The file cannot be opened, or did not close in time.
    """
    database = await trio.to_thread.run_sync(
        open_database, path, options.readers, options.busy_seconds, options.is_checked
    )
    store = SqliteStore(database, options)
    async with store.running(str(path)):
        yield store


# -- in memory --


class _InlineExecutor:
    """Runs each job at once, in the task that submits it."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.connection.execute("PRAGMA foreign_keys = ON")
        migrate(self.connection)
        self.is_closed = False

    async def submit(self, job: Callable[[SqlConnection], T]) -> T:
        """Run one job in a transaction."""
        # Other tasks run here, as they would while a real store waits. The job itself is one step.
        await trio.lowlevel.checkpoint()
        if self.is_closed:
            raise StoreError(CLOSED)
        [result] = run_batch(self.connection, [job])
        return result.get()  # type: ignore[no-any-return]  # the job's own return value

    read = submit

    def close(self) -> None:
        """Discard everything."""
        self.is_closed = True
        self.connection.close()


class MemoryStore(BaseSqlStore):
    """A :class:`~hermes_trio.stores.base.Store` in memory.

    Closed at the latest when it is garbage-collected.
    """

    def __init__(self) -> None:
        executor = _InlineExecutor()
        super().__init__(executor, executor)
        self.close = weakref.finalize(self, executor.close)


@asynccontextmanager
async def open_memory() -> AsyncIterator[MemoryStore]:
    """Open an empty store; it is discarded on exit."""
    store = MemoryStore()
    try:
        yield store
    finally:
        store.close()
