"""The store for one machine: an SQLite file, one writer with group commit, a few readers.

SQLite before 3.51.3 can damage a file when two connections write or checkpoint at the same instant. Here one
connection does both, and a lock file keeps other processes of ours away.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import trio
from attrs import frozen

from hermes_trio.stores.base import StoreError
from hermes_trio.stores.connections import open_connections
from hermes_trio.stores.readers import Readers
from hermes_trio.stores.sql_store import SqlStore
from hermes_trio.stores.writer import Writer


@frozen
class SqliteOptions:
    """The limits of an SQLite store."""

    readers: int = 4
    pending: int = 1024  # jobs accepted and not yet in a transaction; beyond that callers wait
    batch: int = 256  # jobs in one transaction
    busy_seconds: float = 5.0  # how long to wait for a foreign lock on the database
    close_seconds: float = 20.0  # how long closing may take; more than busy_seconds


DEFAULTS = SqliteOptions()


class SqliteStore(SqlStore):
    """A :class:`~hermes_trio.stores.base.Store` in a file. Made by :func:`open_sqlite`."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        super().__init__(writer, readers)
        self._writer = writer
        self._readers = readers

    @property
    def commits(self) -> int:
        """How many transactions there were."""
        return self._writer.commits

    async def close(self) -> None:
        """Finish what was begun, the last notes too."""
        await self.write_notes()
        await self._writer.close()
        await self._readers.close()


@asynccontextmanager
async def open_sqlite(path: Path, options: SqliteOptions = DEFAULTS) -> AsyncIterator[SqliteStore]:
    """Open the store in a file, which is made if it is not there, for its owner only.

    Leaving commits everything accepted so far, even when the owner is being cancelled.

    Raises:
        StoreError: the file cannot be opened, or could not be closed in time.
    """
    connections = await trio.to_thread.run_sync(open_connections, path, options.readers, options.busy_seconds)
    writer = Writer(connections.writer, options.pending, options.batch)
    store = SqliteStore(writer, Readers(connections.readers))
    with _unwrapped():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            try:
                yield store
            finally:
                with trio.move_on_after(options.close_seconds, shield=True) as limit:
                    await store.close()
                    await trio.to_thread.run_sync(connections.close, abandon_on_cancel=True)
                if limit.cancelled_caught:
                    writer.abandon()
                    raise StoreError(f"{path} did not close within {options.close_seconds:g} s")


@contextmanager
def _unwrapped() -> Iterator[None]:
    """Let what the user of the store raised come out as it is, not in the group that our nursery makes of it."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        [error] = group.exceptions
        context = error.__context__
        try:
            raise error
        finally:
            error.__context__ = context
