"""A database file as the source of a migration."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from hermes_trio.stores.base import StoreError, newer_schema
from hermes_trio.stores.migration import CopiedTable, Row, SourceTable, TargetColumn
from hermes_trio.stores.sqlite.connections import acquire_lock, connect_to_read, to_store_error
from hermes_trio.stores.sqlite.schema import LATEST_VERSION, schema_version

_BUSY_SECONDS = 5.0
_TABLES = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
)
_COLUMNS = "SELECT name, pk FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY pk"


class SqliteSource:
    """See :class:`~hermes_trio.stores.migration.MigrationSource`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def tables(self) -> Mapping[str, SourceTable]:
        """See the interface."""
        names = [name.decode() for (name,) in self._connection.execute(_TABLES).fetchall()]
        return {name: self._describe(name) for name in names}

    def _describe(self, name: str) -> SourceTable:
        columns = self._connection.execute(_COLUMNS, [name]).fetchall()
        return SourceTable(
            columns=frozenset(column.decode() for column, _ in columns),
            key=tuple(column.decode() for column, number in columns if number),
            has_rowid=self._has_rowid(name),
        )

    def _has_rowid(self, name: str) -> bool:
        try:
            self._connection.execute(f"SELECT rowid FROM {_quote(name)} LIMIT 0")  # noqa: S608 - quoted
        except sqlite3.OperationalError:
            return False
        return True

    def read(self, table: CopiedTable, after: tuple[Any, ...] = ()) -> Iterator[Row]:
        """See the interface.

        Raises:
            StoreError: The file cannot be read, or has a value that its column should not have.
        """
        values = ", ".join(column.expression or _quote(column.name) for column in table.columns)
        key = ", ".join(map(_quote, table.key))
        where = f"WHERE ({key}) > ({', '.join('?' * len(after))})" if after else ""
        query = f"SELECT {values} FROM {_quote(table.name)} {where} ORDER BY {key}"  # noqa: S608 - quoted
        try:
            for row in self._connection.execute(query, after):
                try:
                    cells = zip(table.columns, row, strict=True)
                    converted = tuple(_to_kind(column, value) for column, value in cells)
                except ValueError as error:
                    key_values = [row[table.index(name)] for name in table.key]
                    raise StoreError(
                        f"a row of {table.name} cannot be copied: {error}, in the row {key_values!r}"
                    ) from error
                yield converted
        except sqlite3.Error as error:
            raise to_store_error(error, f"cannot read {table.name}") from error


def _quote(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


# -- values --


def _to_kind(column: TargetColumn, value: Any) -> Any:
    """Give a value the type of its column: SQLite stores whatever it is given."""
    match column.kind, value:
        case "text", bytes():  # the bytes of a text or of a blob
            return value.decode()
        case ("bytes", bytes()) | ("integer", int()) | ("real", float()):
            return value
        case "real", int():
            return float(value)
        case _:
            raise ValueError(f"{column.name} is of type {type(value).__name__}, not {column.kind}")


# -- opening --


@contextmanager
def open_source(path: Path) -> Iterator[SqliteSource]:
    """Open a file to read it, and keep servers out meanwhile.

    Raises:
        StoreError: There is no such file, a server uses it, or it has the schema of another version.
    """
    path = path.absolute().resolve()
    if not path.is_file():
        raise StoreError(f"there is no database {path}")
    try:
        lock = acquire_lock(path)
    except StoreError:
        raise StoreError(f"{path} is in use: stop the server first") from None
    except OSError as error:
        raise StoreError(f"cannot lock {path}: {error.strerror}") from error
    try:
        with closing(connect_to_read(path, _BUSY_SECONDS)) as connection:
            _check_version(connection, path)
            connection.execute("BEGIN")
            connection.text_factory = (
                bytes  # the driver would fail on invalid text without naming the row
            )
            yield SqliteSource(connection)
    except sqlite3.Error as error:
        raise to_store_error(error, f"cannot read {path}") from error
    finally:
        os.close(lock)


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    version = schema_version(connection)
    if version == 0:
        raise StoreError(f"{path} is not a database of hermes-trio")
    if version < LATEST_VERSION:
        raise StoreError(
            f"{path} has schema version {version}, and this version of hermes-trio moves version {LATEST_VERSION}:"
            " start and stop its server once, which upgrades the file"
        )
    if version > LATEST_VERSION:
        raise StoreError(newer_schema(str(path), version, LATEST_VERSION))
