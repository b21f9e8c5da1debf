"""What the SQLite store asks of the database. Each function is one job on a connection, inside a thread."""

from __future__ import annotations

import sqlite3

from hermes_trio.core.messages import Message
from hermes_trio.core.record import TurnRecord
from hermes_trio.stores.codec import bodies, decode, encode, legible


def save(connection: sqlite3.Connection, record: TurnRecord) -> None:
    """Append a turn, unless this run is there already."""
    written = bodies(record)  # first: a turn that cannot be written must not touch the database
    if not _is_known(connection, record):
        _touch_session(connection, record)
        _add_turn(connection, record)
        _add_messages(connection, record, written)


def _is_known(connection: sqlite3.Connection, record: TurnRecord) -> bool:
    query = "SELECT 1 FROM turns WHERE principal = ? AND run_id = ?"
    return connection.execute(query, (record.principal, record.run_id)).fetchone() is not None


def _touch_session(connection: sqlite3.Connection, record: TurnRecord) -> None:
    connection.execute(
        "INSERT INTO sessions (principal, session_id, created_at, updated_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET updated_at = max(updated_at, excluded.updated_at)",
        (record.principal, record.session_id, record.started_at, record.ended_at),
    )


def _add_turn(connection: sqlite3.Connection, record: TurnRecord) -> None:
    row = (
        record.principal,
        record.run_id,
        record.session_id,
        legible(record.model),
        legible(record.status),
        legible(record.reason),
        record.started_at,
        record.ended_at,
        encode(record.usage),
    )
    connection.execute(
        "INSERT INTO turns (principal, run_id, session_id, model, status, reason, started_at, ended_at, usage)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        row,
    )


def _add_messages(connection: sqlite3.Connection, record: TurnRecord, written: tuple[str, ...]) -> None:
    start = _next_n(connection, record)
    connection.executemany(
        "INSERT INTO messages (principal, session_id, n, run_id, body) VALUES (?, ?, ?, ?, ?)",
        (
            (record.principal, record.session_id, n, record.run_id, body)
            for n, body in enumerate(written, start)
        ),
    )


def _next_n(connection: sqlite3.Connection, record: TurnRecord) -> int:
    query = "SELECT coalesce(max(n) + 1, 0) FROM messages WHERE principal = ? AND session_id = ?"
    return int(connection.execute(query, (record.principal, record.session_id)).fetchone()[0])


def load(connection: sqlite3.Connection, principal: str, session_id: str) -> tuple[Message, ...]:
    """The messages of a session in order."""
    # As a blob: a damaged text would otherwise fail inside the driver, which cannot say in which row.
    query = "SELECT n, CAST(body AS BLOB) FROM messages WHERE principal = ? AND session_id = ? ORDER BY n"
    rows = connection.execute(query, (principal, session_id)).fetchall()
    return tuple(decode(body, session_id, n) for n, body in rows)


def read_probe(connection: sqlite3.Connection) -> None:
    """Read something from the file, whatever is there."""
    connection.execute("SELECT principal FROM sessions LIMIT 1").fetchall()


def write_probe(connection: sqlite3.Connection, now: float) -> None:
    """Change one small row."""
    connection.execute(
        "INSERT INTO probe (id, checked_at) VALUES (1, ?) ON CONFLICT DO UPDATE SET checked_at = excluded.checked_at",
        (now,),
    )
