"""Statements that insert many rows, in place of shared statements that insert one.

The ends of many runs share a transaction, and each takes several inserts. Executing a statement for
each row costs more than the rows themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from hermes_trio.stores.postgres.dialect import translate
from hermes_trio.stores.sql import runs, sessions

Row = Mapping[str, Any]

MIN_ROWS = 4
"""Fewer rows are inserted one by one."""

MAX_SIZE = 50_000_000
"""Bytes and characters in one statement; the server takes no message of 1 GB."""

_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_REALS = frozenset({"created_at", "used_at", "ended_after", "at"})
_BLOBS = frozenset({"header", "items"})
_INTEGERS = frozenset({"owner_epoch", "has_tail", "listed", "size", "log_size", "first", "count"})


@frozen
class BulkInsert:
    """A statement that inserts rows; its parameters are one array for each of their columns."""

    sql: bytes
    kinds: Mapping[str, str]  # the types of the columns that are given, by name
    key: tuple[str, ...]  # which no two rows of the statement may share; () if they may

    def takes(self, rows: Sequence[Row]) -> bool:
        """Return whether the statement can insert the rows."""
        if len(rows) < MIN_ROWS or sum(map(_size, rows)) > MAX_SIZE:
            return False
        return not self.key or len({self.key_of(row) for row in rows}) == len(rows)

    def key_of(self, row: Row) -> tuple[Any, ...]:
        """Return the key of a row."""
        return tuple(row[name] for name in self.key)

    def parameters(self, rows: Sequence[Row]) -> dict[str, list[Any]]:
        """Return the arrays."""
        return {
            name: [float(row[name]) if kind == "float8" else row[name] for row in rows]
            for name, kind in self.kinds.items()
        }


def _size(row: Row) -> int:
    return sum(len(value) for value in row.values() if isinstance(value, (str, bytes)))


def _bulk(template: str, key: tuple[str, ...] = (), body: str = "text") -> BulkInsert:
    """Return a statement in which GIVEN stands for the rows, and ``:name`` for one of their columns."""
    kinds = {name: _kind(name, body) for name in dict.fromkeys(_PARAMETER.findall(template))}
    arrays = ", ".join(f"CAST(%({name})s AS {kind}[])" for name, kind in kinds.items())
    given = f"unnest({arrays}) WITH ORDINALITY AS given ({', '.join(kinds)}, position)"
    sql = _PARAMETER.sub(r"given.\1", template).replace("GIVEN", given)
    return BulkInsert(sql.encode(), kinds, key)


def _kind(name: str, body: str) -> str:
    if name == "body":
        return body
    if name in _REALS:
        return "float8"
    if name in _BLOBS:
        return "bytea"
    is_integer = name in _INTEGERS or name.endswith(("_count", "_tokens"))
    return "bigint" if is_integer else "text"


def _of_rows(statement: str, key: tuple[str, ...]) -> BulkInsert:
    """Return a shared statement that inserts or updates one row as one for many rows."""
    insert, conflict, update = translate(statement).partition("ON CONFLICT")
    if "VALUES (" in insert:
        insert = insert.replace("VALUES (", "SELECT ").rstrip().removesuffix(")")
        insert += " FROM GIVEN "
    else:
        insert = insert.replace("WHERE NOT EXISTS", "FROM GIVEN WHERE NOT EXISTS")
    # The row that was to be inserted has the parameters under the names of its columns.
    update = _PARAMETER.sub(r"excluded.\1", update)
    return _bulk(f"{insert}{conflict}{update} RETURNING {', '.join(key)}", key)


# OFFSET 0 keeps the planner from reading the whole table for the few rows that are given.
_INSERT_BATCHES = """
    INSERT INTO log (day, principal, run_id, first, count, body)
    SELECT run.day, :principal, :run_id, :first, :count, :body FROM GIVEN CROSS JOIN LATERAL (
        SELECT day FROM runs WHERE runs.principal = :principal AND runs.run_id = :run_id OFFSET 0
    ) AS run
    ON CONFLICT (principal, run_id, first, day)
        DO UPDATE SET count = excluded.count, body = excluded.body WHERE excluded.count > log.count
"""
_APPEND_MESSAGES = """
    INSERT INTO messages (principal, session_id, n, run_id, at, body)
    SELECT :principal, :session_id, (
            SELECT coalesce(max(n) + 1, 0) FROM messages AS earlier
            WHERE earlier.principal = :principal AND earlier.session_id = :session_id
        ) + row_number() OVER (PARTITION BY :principal, :session_id ORDER BY given.position) - 1,
        :run_id, :at, :body
    FROM GIVEN
"""

BULK_INSERTS: Mapping[str, BulkInsert] = {
    runs.END: _of_rows(runs.END, ("principal", "run_id")),
    runs.INSERT_ITEM: _of_rows(runs.INSERT_ITEM, ("principal", "item_id")),
    runs.INSERT_BATCH: _bulk(_INSERT_BATCHES, ("principal", "run_id", "first"), "bytea"),
    sessions.UPSERT: _of_rows(sessions.UPSERT, ("principal", "session_id")),
    sessions.APPEND_MESSAGE: _bulk(_APPEND_MESSAGES),
}
"""By the shared statement."""
