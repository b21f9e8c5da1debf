"""Opening the store in a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from attrs import frozen

from hermes_trio.core.records import PurgeResult, Retention
from hermes_trio.stores.sql.store import SqlStore, SqlStoreOptions
from hermes_trio.stores.sqlite.connections import SqliteDatabase, open_database, return_free_pages


@frozen
class SqliteOptions(SqlStoreOptions):
    """The limits of an SQLite store."""

    busy_seconds: float = (
        5.0  # how long to wait for another program's lock; less than close_seconds
    )
    is_checked: bool = False  # look for damage when the file is opened, which reads all of it


DEFAULTS = SqliteOptions()


class SqliteStore(SqlStore):
    """A :class:`~hermes_trio.stores.base.Store` in a file, opened by :func:`open_sqlite`."""

    _database: SqliteDatabase

    async def heartbeat(self) -> None:
        """See :class:`~hermes_trio.stores.base.Heartbeat`. Notices a file that was deleted or replaced."""
        self._database.check_file()
        await super().heartbeat()

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
