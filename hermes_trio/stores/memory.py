"""A store in memory, for trials and tests.

It is lost when it closes, and it grows with everything that is stored.

It is the SQLite store on an in-memory database, where no call waits for a disk or needs a thread.
It therefore accepts and returns exactly what the file store does.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from hermes_trio.stores.base import StoreError
from hermes_trio.stores.sql.database import CLOSED, SqlConnection
from hermes_trio.stores.sql.store import BaseSqlStore
from hermes_trio.stores.sqlite.connections import run_batch
from hermes_trio.stores.sqlite.schema import migrate

T = TypeVar("T")


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
