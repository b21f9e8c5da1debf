"""The store for trials and tests: everything is gone when it closes, and it grows with all that is said.

It is the same database as the one in a file, but in memory, where no call waits for a disk and none needs a thread.
So it accepts and returns just what the other does.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from hermes_trio.stores.base import StoreError
from hermes_trio.stores.faults import CLOSED
from hermes_trio.stores.migrations import migrate
from hermes_trio.stores.sql_store import SqlStore
from hermes_trio.stores.writer import run_batch

T = TypeVar("T")


class _Inline:
    """Runs jobs at once, where they are asked for."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.connection.execute("PRAGMA foreign_keys = ON")
        migrate(self.connection)
        self.is_closed = False

    async def submit(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run one job in a transaction."""
        # Others run here, as they would while a real store waits; the change after it is done in one go.
        await trio.lowlevel.checkpoint()
        if self.is_closed:
            raise StoreError(CLOSED)
        [outcome] = run_batch(self.connection, [work])
        return outcome.get()  # type: ignore[no-any-return]  # it is what the job returned

    read = submit

    def close(self) -> None:
        """Forget everything."""
        self.is_closed = True
        self.connection.close()


class MemoryStore(SqlStore):
    """A :class:`~hermes_trio.stores.base.Store` in memory."""

    def __init__(self) -> None:
        inline = _Inline()
        super().__init__(inline, inline)
        self.close = weakref.finalize(
            self, inline.close
        )  # at the latest when nobody holds the store any more


@asynccontextmanager
async def open_memory() -> AsyncIterator[MemoryStore]:
    """An empty store."""
    store = MemoryStore()
    try:
        yield store
    finally:
        store.close()
