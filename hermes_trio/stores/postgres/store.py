"""Opening the store in a PostgreSQL database."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from attrs import frozen

from hermes_trio.core.records import PurgeResult, Retention
from hermes_trio.stores.postgres.connections import PostgresDatabase, open_database
from hermes_trio.stores.sql.store import SqlStore, SqlStoreOptions


@frozen
class PostgresOptions(SqlStoreOptions):
    """The limits of a PostgreSQL store. It has one connection more for writing, and one for its lock."""


DEFAULTS = PostgresOptions()


class PostgresStore(SqlStore):
    """A :class:`~hermes_trio.stores.base.Store` in a database, opened by :func:`open_postgres`."""

    _database: PostgresDatabase

    async def find_items(
        self, principal: str, item_ids: Sequence[str]
    ) -> Mapping[str, Mapping[str, Any]]:
        """See the interface. PostgreSQL's JSON has no NUL, so items with such ids are not found."""
        return await super().find_items(
            principal, [each for each in item_ids if not {"\0", "\1"}.intersection(each)]
        )

    async def purge(self, retention: Retention, now: float) -> PurgeResult:
        """See the interface. Expired logs give back their space when a whole day of them has expired."""
        result = await super().purge(retention, now)
        await self._readers.run(partial(self._database.maintain_partitions, now))
        return result


@asynccontextmanager
async def open_postgres(
    url: str, options: PostgresOptions = DEFAULTS
) -> AsyncIterator[PostgresStore]:
    """Open the store in a database, creating its tables if necessary.

    Leaving the context commits everything accepted so far, even when the task is being cancelled.

    Raises:
        StoreError: The database cannot be opened, or did not close in time.
    """
    database = await trio.to_thread.run_sync(open_database, url, time.time())
    store = PostgresStore(database, options)
    async with store.running("the postgresql store"):
        yield store
