"""A PostgreSQL database as the target of a migration."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql

from hermes_trio.stores.base import StoreError
from hermes_trio.stores.migration import (
    ColumnKind,
    CopiedTable,
    CopyPosition,
    MigrationSource,
    Row,
    TargetColumn,
)
from hermes_trio.stores.postgres.connections import (
    OLDEST_SERVER,
    connect,
    inspect_database,
    to_store_error,
)
from hermes_trio.stores.postgres.schema import (
    DAYS_AHEAD,
    MIGRATION_STATE,
    SECONDS_PER_DAY,
    create_partitions,
    migrate,
)

MAX_PARTITIONS = 100
"""Partitions that are created for the logs that are copied; those of earlier days need none."""

_LOCK = "SELECT pg_advisory_xact_lock(hashtext('hermes-trio store migrate'))"
_KINDS: Mapping[str, ColumnKind] = {
    "text": "text",
    "bytea": "bytes",
    "int2": "integer",
    "int4": "integer",
    "int8": "integer",
    "float8": "real",
}
# Generated columns are left out: they generate themselves again. An identity can be copied.
_COLUMNS = """
    SELECT CAST(relname AS text), CAST(attname AS text), CAST(typname AS text), attidentity <> ''
    FROM pg_class
        JOIN pg_attribute ON attrelid = pg_class.oid
        JOIN pg_type ON pg_type.oid = atttypid
    WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
        AND relkind IN ('r', 'p') AND NOT relispartition AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    ORDER BY relname, attnum
"""
# SQLite has no floor() everywhere.
_DAYS = f"created_at / {SECONDS_PER_DAY}"
_DAY = f"CAST({_DAYS} AS INTEGER) - ({_DAYS} < CAST({_DAYS} AS INTEGER))"
_HAS_LOG = "logged = 1 OR status = 'in_progress'"
_DAY_WITH_LOG = TargetColumn("day", "integer", f"CASE WHEN {_HAS_LOG} THEN {_DAY} ELSE -1 END")
_DAYS_WITH_LOGS = CopiedTable("runs", (_DAY_WITH_LOG,), ("principal", "run_id"))
_RUN_OF_LOG = "runs.principal = log.principal AND runs.run_id = log.run_id"
_EXPRESSIONS = {
    ("log", "day"): f"(SELECT {_DAY} FROM runs WHERE {_RUN_OF_LOG})",  # noqa: S608 - constant
}
_POSITION = "SELECT tables, after_key, rows FROM store_migration FOR UPDATE"
_SAVE_POSITION = "UPDATE store_migration SET tables = %s, after_key = %s, rows = %s"


class PostgresTarget:
    """See :class:`~hermes_trio.stores.migration.MigrationTarget`."""

    def __init__(self, driver: psycopg.Connection) -> None:
        self._driver = driver
        self._types: dict[tuple[str, str], str] = {}
        self._identities: list[tuple[str, str]] = []

    def tables(self) -> Mapping[str, tuple[TargetColumn, ...]]:
        """See the interface."""
        found: dict[str, tuple[TargetColumn, ...]] = {}
        self._identities = []
        for table, column, kind, is_identity in self._driver.execute(_COLUMNS).fetchall():
            if kind in _KINDS:
                expression = _EXPRESSIONS.get((table, column), "")
                found[table] = (
                    *found.get(table, ()),
                    TargetColumn(column, _KINDS[kind], expression),
                )
                self._types[table, column] = kind
                if is_identity:
                    self._identities.append((table, column))
        return found

    def begin(self, source: str, tables: Sequence[CopiedTable]) -> CopyPosition:
        """See the interface."""
        with _translated_errors(), self._driver.transaction():
            self._driver.execute(_LOCK)
            for statement in MIGRATION_STATE:
                self._driver.execute(statement.encode())
            found = self._driver.execute(
                "SELECT source, finished_at FROM store_migration"
            ).fetchone()
            if found is None:
                self._require_empty(tables)
                row = [source, time.time()]
                self._driver.execute(
                    "INSERT INTO store_migration (source, begun_at) VALUES (%s, %s)", row
                )
            elif found[1]:
                raise StoreError("the target is not empty: records have been moved to it before")
            elif found[0] != source:
                raise StoreError(
                    "the target holds the beginning of another migration, or the source has changed since:"
                    " begin again with an empty database"
                )
            return self._read_position()

    def prepare(self, source: MigrationSource) -> None:
        """See the interface. Every day of logs gets a partition, up to a limit."""
        today = int(time.time() // SECONDS_PER_DAY)
        days = sorted({day for (day,) in source.read(_DAYS_WITH_LOGS) if day >= 0})
        with _translated_errors():
            coming = range(today, today + DAYS_AHEAD + 1)
            create_partitions(self._driver, sorted({*days[-MAX_PARTITIONS:], *coming}))

    def _require_empty(self, tables: Sequence[CopiedTable]) -> None:
        for table in tables:
            query = sql.SQL("SELECT 1 FROM {} LIMIT 1").format(sql.Identifier(table.name))
            if self._driver.execute(query).fetchone():
                raise StoreError(f"the target is not empty: it has {table.name}")

    def _read_position(self) -> CopyPosition:
        row = self._driver.execute(_POSITION).fetchone()
        assert row is not None
        return CopyPosition(row[0], tuple(json.loads(row[1] or "[]")), row[2])

    @contextmanager
    def batch(self, expected: CopyPosition) -> Iterator[None]:
        """See the interface."""
        with _translated_errors(), self._driver.transaction():
            if self._read_position() != expected:
                raise StoreError("another process is moving records to the same database")
            yield

    def write(self, table: CopiedTable, rows: Iterator[Row]) -> None:
        """See the interface."""
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(*_names(table))
        with self._driver.cursor().copy(statement) as copy:
            copy.set_types([self._types[table.name, column.name] for column in table.columns])
            for row in rows:
                copy.write_row(row)

    def save_position(self, position: CopyPosition) -> None:
        """See the interface."""
        after = json.dumps(position.after)
        self._driver.execute(_SAVE_POSITION, [position.tables, after, position.rows])

    def read(self, table: CopiedTable) -> Iterator[Row]:
        """See the interface."""
        name, columns = _names(table)
        query = sql.SQL("SELECT {} FROM {}").format(columns, name)
        with _translated_errors():
            yield from self._driver.cursor().stream(query, binary=True)

    def finish(self) -> None:
        """See the interface."""
        with _translated_errors(), self._driver.transaction():
            self._driver.execute("ANALYZE")  # else the first queries are planned for empty tables
            for table, column in self._identities:
                query = sql.SQL("SELECT setval(pg_get_serial_sequence({}, {}), max({})) FROM {}")
                names = sql.Identifier(column), sql.Identifier(table)
                self._driver.execute(query.format(sql.Literal(table), sql.Literal(column), *names))
            self._driver.execute("UPDATE store_migration SET finished_at = %s", [time.time()])


def _names(table: CopiedTable) -> tuple[sql.Identifier, sql.Composed]:
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns)
    return sql.Identifier(table.name), columns


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise to_store_error(error, "cannot use the target") from error


@contextmanager
def open_target(url: str) -> Iterator[PostgresTarget]:
    """Connect to a database, and create or migrate its tables.

    Raises:
        StoreError: The database cannot be used, a server uses it, or it was written by a newer version.
    """
    info = inspect_database(url)
    if info.version < OLDEST_SERVER:
        raise StoreError("the database server of the target is older than PostgreSQL 14")
    if info.encoding != "UTF8":
        raise StoreError(f"the target is a database in {info.encoding}: it has to be in UTF8")
    if info.living_nodes:
        raise StoreError("the target is in use: stop the server first")
    with _translated_errors(), connect(url) as driver:
        migrate(driver)
        yield PostgresTarget(driver)
