"""Transcripts in SQLite, and the health check. Each function is one job, or part of one, on a connection."""

from __future__ import annotations

import sqlite3

from attrs import frozen

from hermes_trio.core.messages import Message
from hermes_trio.stores.codec import message


@frozen
class Said:
    """What a run adds to a session."""

    principal: str
    session_id: str
    run_id: str
    began_at: float
    ended_at: float
    bodies: tuple[str, ...]


def append(connection: sqlite3.Connection, said: Said) -> None:
    """Add messages at the end of a session, which is made if need be."""
    connection.execute(
        "INSERT INTO sessions (principal, session_id, created_at, updated_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET updated_at = max(updated_at, excluded.updated_at)",
        (said.principal, said.session_id, said.began_at, said.ended_at),
    )
    start = _next_n(connection, said)
    connection.executemany(
        "INSERT INTO messages (principal, session_id, n, run_id, body) VALUES (?, ?, ?, ?, ?)",
        (
            (said.principal, said.session_id, n, said.run_id, body)
            for n, body in enumerate(said.bodies, start)
        ),
    )


def _next_n(connection: sqlite3.Connection, said: Said) -> int:
    query = "SELECT coalesce(max(n) + 1, 0) FROM messages WHERE principal = ? AND session_id = ?"
    return int(connection.execute(query, (said.principal, said.session_id)).fetchone()[0])


def has_spoken(connection: sqlite3.Connection, principal: str, run_id: str) -> bool:
    """Whether a run has words in a session: then it has ended, though its record may be gone."""
    query = "SELECT 1 FROM messages WHERE principal = ? AND run_id = ? LIMIT 1"
    return connection.execute(query, (principal, run_id)).fetchone() is not None


def load(connection: sqlite3.Connection, principal: str, session_id: str) -> tuple[Message, ...]:
    """The messages of a session in order."""
    # As a blob: a damaged text would otherwise fail inside the driver, which cannot say in which row.
    query = "SELECT n, CAST(body AS BLOB) FROM messages WHERE principal = ? AND session_id = ? ORDER BY n"
    rows = connection.execute(query, (principal, session_id)).fetchall()
    owner = f"session {session_id!r}"
    return tuple(message(body, n, owner) for n, body in rows)


def read_probe(connection: sqlite3.Connection) -> None:
    """Read something from the file, whatever is there."""
    connection.execute("SELECT principal FROM sessions LIMIT 1").fetchall()


def write_probe(connection: sqlite3.Connection, now: float) -> None:
    """Change one small row."""
    connection.execute(
        "INSERT INTO probe (id, checked_at) VALUES (1, ?) ON CONFLICT DO UPDATE SET checked_at = excluded.checked_at",
        (now,),
    )
