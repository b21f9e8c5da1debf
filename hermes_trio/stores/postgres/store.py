"""Opening the store in a PostgreSQL database."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import psycopg
import trio

from hermes_trio.core.records import Node, PurgeResult, Retention, TakenOverRun
from hermes_trio.stores.codec import check_ids
from hermes_trio.stores.postgres import nodes
from hermes_trio.stores.postgres.connections import PostgresDatabase, open_database
from hermes_trio.stores.postgres.schema import maintain_partitions
from hermes_trio.stores.postgres.sharing import PostgresOptions, SharedSqlStore
from hermes_trio.stores.sql import owners
from hermes_trio.stores.sql.database import ReaderPool

T = TypeVar("T")

RELEASE_SECONDS = 60.0
"""How often idempotency keys without a run are looked for."""

# A renewal waits for neither readers nor the writer. A second thread opens another connection while
# the first waits on one that is lost.
_LEASE_THREADS = 2

DEFAULTS = PostgresOptions()


class PostgresStore(SharedSqlStore):
    """A :class:`~hermes_trio.stores.base.Store` in a database, opened by :func:`open_postgres`."""

    def __init__(self, database: PostgresDatabase, options: PostgresOptions) -> None:
        super().__init__(database, options)
        self.lease_seconds = options.lease_seconds
        self._lease_threads = ReaderPool(database, _LEASE_THREADS)
        self._addresses: dict[str, str] = {}  # of the nodes that joined through this store
        self._release_at = time.monotonic()  # when to look for keys without a run

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
        await self._readers.run(partial(self._database.run, partial(maintain_partitions, now=now)))
        return result

    async def take_over_runs(self, node: str) -> tuple[TakenOverRun, ...]:
        """See the interface.

        A node is dead if it has no lease or its lease has lapsed. Now and then, idempotency keys
        are released whose runs did not begin within some time.
        """
        check_ids(node)
        if time.monotonic() >= self._release_at:
            self._release_at = time.monotonic() + RELEASE_SECONDS
            await self._submit(owners.release_claims)
        taken = await self._take_over(node)
        await self._readers.run(partial(self._database.run, nodes.release_rows))
        return taken

    async def join(self, node: str, address: str) -> None:
        """See :class:`~hermes_trio.stores.base.SharedStore`."""
        check_ids(node, address)
        self._addresses[node] = address
        self._database.writer_name = nodes.writer_name(node)
        await self._run_for_lease(partial(nodes.join, lease=self._lease(node)))

    async def renew_lease(self, node: str) -> bool:
        """See :class:`~hermes_trio.stores.base.SharedStore`."""
        check_ids(node)
        return await self._run_for_lease(partial(nodes.renew, lease=self._lease(node)))

    async def leave(self, node: str) -> None:
        """See :class:`~hermes_trio.stores.base.SharedStore`."""
        check_ids(node)
        await self._run_for_lease(partial(nodes.leave, node=node))

    async def list_nodes(self) -> tuple[Node, ...]:
        """See :class:`~hermes_trio.stores.base.SharedStore`."""
        return await self._readers.run(partial(self._database.run, nodes.list_all))

    async def find_owner(self, principal: str, run_id: str) -> str:
        """See :class:`~hermes_trio.stores.base.SharedStore`."""
        check_ids(principal, run_id)
        job = partial(nodes.find_owner, principal=principal, run_id=run_id)
        return await self._readers.run(partial(self._database.run, job))

    def _lease(self, node: str) -> nodes.Lease:
        return nodes.Lease(node, self._addresses.get(node, ""), self.lease_seconds)

    async def _run_for_lease(self, job: Callable[[psycopg.Connection], T]) -> T:
        return await self._lease_threads.run(partial(self._database.run, job))

    async def _close(self) -> None:
        await self._lease_threads.close()
        await super()._close()


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
