"""The tables in PostgreSQL: their columns, migrations, partitions, and the order of texts."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing

import attrs
import pytest
import trio

from hermes_trio.core.records import Ownership, PurgeResult
from hermes_trio.core.sessions import Session, SessionQuery
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.sqlite import schema as sqlite_schema
from tests.stores.samples import KEEP_ALL, batch, ended, header, logged_numbers
from tests.support.postgres import PostgresServer

pytest.importorskip("psycopg")

import psycopg

from hermes_trio.stores.postgres import (
    connections,
    open_postgres,
    schema,
)

DAY = schema.SECONDS_PER_DAY
COLUMNS = (
    "SELECT table_name, column_name FROM information_schema.columns"
    " WHERE table_schema = 'public' AND table_name !~ '^log_'"
)
OURS_ALONE = {
    *((table, column) for table, column in [("log", "day"), ("schema_version", "version")]),
    *(("runs", column) for column in ("rowid", "day")),
    *(
        ("nodes", column)
        for column in ("node", "epoch", "address", "heartbeat_at", "lease_seconds")
    ),
    *(("session_locks", column) for column in ("principal", "session_id", "node", "locked_at")),
    *(("run_slots", column) for column in ("principal", "number", "slot", "node", "taken_at")),
    *(
        ("commands", column)
        for column in ("command_id", "principal", "run_id", "kind", "arguments")
    ),
    *(
        ("commands", column)
        for column in ("sender", "created_at", "taken_at", "answer", "answered_at")
    ),
}


def partitions(server: PostgresServer, url: str) -> set[object]:
    """Return the names of the log's partitions."""
    rows = server.execute("SELECT relname FROM pg_class WHERE relname ~ '^log_[a-z0-9]+$'", url)
    return {name for (name,) in rows}


async def test_columns_are_those_of_sqlite(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with open_postgres(postgres_url):
        found = set(postgres_server.execute(COLUMNS, postgres_url))
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        sqlite_schema.migrate(connection)
        expected = connection.execute(
            "SELECT m.name, c.name FROM sqlite_schema AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'"
        ).fetchall()
    assert found == {*expected, *OURS_ALONE}


async def test_servers_that_start_at_once_migrate_once(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()

    def migrate() -> None:
        with connections.connect(url) as connection:
            schema.migrate(connection)

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(trio.to_thread.run_sync, migrate)
    [(version,)] = postgres_server.execute("SELECT version FROM schema_version", url)
    assert version == schema.LATEST_VERSION


async def test_later_migrations_are_applied_to_an_older_database(
    postgres_server: PostgresServer,
) -> None:
    url = postgres_server.create_database()
    more = ("ALTER TABLE nodes ADD COLUMN added TEXT NOT NULL DEFAULT ''",)
    with connections.connect(url) as connection:
        schema.migrate(connection)
        schema.migrate(connection, (*schema.MIGRATIONS, more))
        assert schema.schema_version(connection) == schema.LATEST_VERSION + 1
    with pytest.raises(StoreError, match="supports only up to"):
        async with open_postgres(url):
            pass


async def test_servers_that_start_at_once_share_the_work_on_partitions(
    postgres_server: PostgresServer,
) -> None:
    """Each fails to create what another has just created, and goes on."""
    url = postgres_server.create_database()
    with connections.connect(url) as connection:
        schema.migrate(connection)
    together = threading.Barrier(4)

    def maintain() -> None:
        with connections.connect(url) as connection:
            for round_ in range(10):
                together.wait(30)
                schema.maintain_partitions(connection, (3_000 + 10 * round_) * DAY)

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(trio.to_thread.run_sync, maintain)
    assert "log_3090" in partitions(postgres_server, url)


async def test_expired_logs_are_dropped_by_the_day(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    start = 1000.0 * DAY
    retention = attrs.evolve(KEEP_ALL, log_seconds=DAY)
    async with open_postgres(postgres_url) as store:
        assert await store.purge(retention, start) == PurgeResult()
        assert {"log_1000", "log_1001", "log_1002"} <= partitions(postgres_server, postgres_url)
        await store.end_run(ended("old", start + 1), [batch("old", 0)])
        await store.begin_run(header("live", start + 2), Ownership("me"))
        await store.append_log([batch("live", 0), batch("live", 1)])
        rows = postgres_server.execute(
            "SELECT DISTINCT tableoid::regclass::text FROM log", postgres_url
        )
        assert rows == [("log_1000",)]
        assert await store.purge(retention, start + 3 * DAY) == PurgeResult(logs=1)
        assert await logged_numbers(store, "old") == []
        assert await logged_numbers(store, "live") == [0, 1]  # its partition has to stay
        assert "log_1000" in partitions(postgres_server, postgres_url)
        await store.end_run(ended("live", start + 2))
        assert await store.purge(retention, start + 4 * DAY) == PurgeResult(logs=1)
        assert "log_1000" not in partitions(postgres_server, postgres_url)
        assert await logged_numbers(store, "live") == []


async def test_a_reader_of_the_log_does_not_block_the_store(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with open_postgres(postgres_url) as store:
        await store.purge(KEEP_ALL, 2000.0 * DAY)
        with connections.connect(postgres_url) as reader, reader.transaction():
            reader.execute("SELECT * FROM log").fetchall()
            with trio.fail_after(10):
                await store.purge(KEEP_ALL, 2010.0 * DAY)
        assert "log_2000" in partitions(postgres_server, postgres_url)
        await store.purge(KEEP_ALL, 2010.0 * DAY)
        assert "log_2000" not in partitions(postgres_server, postgres_url)


async def test_texts_are_ordered_by_their_bytes(postgres_server: PostgresServer) -> None:
    """Whatever the locale of the database, and with the characters that it cannot store."""
    try:
        url = postgres_server.create_database(
            "TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C'"
        )
    except psycopg.Error:  # not every server has ICU
        url = postgres_server.create_database()
    names = [
        "",
        "\0",
        "\0\0",
        "\0\1",
        "\1",
        "\1\0",
        "\1\1",
        "\2",
        "A",
        "B",
        "a",
        "\u00e4",
        "\U0001f600",
    ]
    async with open_postgres(url) as store:
        for name in reversed(names):
            await store.create_session(Session("ann", name, "chat", 1.0, 1.0))
        page = await store.list_sessions("ann", SessionQuery(limit=50))
        assert [session.session_id for session in page.sessions] == names[::-1]
