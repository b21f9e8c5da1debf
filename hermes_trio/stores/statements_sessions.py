"""Transcripts in SQLite, and the health check. Each function is one job, or part of one, on a connection."""

from __future__ import annotations

import sqlite3

from attrs import frozen

from hermes_trio.core.log_codec import as_dict, field_names
from hermes_trio.core.messages import Message
from hermes_trio.core.sessions import NO_COUNTS, Counters
from hermes_trio.stores.codec import message


@frozen
class Opened:
    """A session in which a run begins, or ends: what it is made with if it is not there."""

    principal: str
    session_id: str
    kind: str
    began_at: float
    used_at: float
    model: str
    preview: str
    parent: str = ""  # the session that it continues


@frozen
class Said:
    """What a run adds to a session."""

    opened: Opened
    run_id: str
    bodies: tuple[str, ...]
    counters: Counters


_COUNTED = field_names(Counters)
# What is not known yet is learned from the first run that knows it.
_OPEN = """
    INSERT INTO sessions (principal, session_id, kind, created_at, updated_at, model, preview, parent, {names})
    VALUES (:principal, :session_id, :kind, :began_at, :used_at, :model, :preview, :parent, {values})
    ON CONFLICT DO UPDATE SET
        updated_at = max(updated_at, excluded.updated_at),
        model = CASE model WHEN '' THEN excluded.model ELSE model END,
        preview = CASE preview WHEN '' THEN excluded.preview ELSE preview END,
        {sums}
""".format(  # noqa: S608 - names of fields of ours
    names=", ".join(_COUNTED),
    values=", ".join(f":{name}" for name in _COUNTED),
    sums=", ".join(f"{name} = {name} + excluded.{name}" for name in _COUNTED),
)
_APPEND = (
    "INSERT INTO messages (principal, session_id, n, run_id, at, body) VALUES (?1, ?2,"
    " (SELECT coalesce(max(n) + 1, 0) FROM messages WHERE principal = ?1 AND session_id = ?2), ?3, ?4, ?5)"
)


def open_session(connection: sqlite3.Connection, opened: Opened, counters: Counters = NO_COUNTS) -> None:
    """Make a session if it is not there, and note that it is used, and what it gains."""
    connection.execute(_OPEN, as_dict(opened) | as_dict(counters))


def append(connection: sqlite3.Connection, said: Said) -> None:
    """Add messages at the end of a session, which is made if need be."""
    open_session(connection, said.opened, said.counters)
    row = (said.opened.principal, said.opened.session_id, said.run_id, said.opened.used_at)
    connection.executemany(_APPEND, ((*row, body) for body in said.bodies))


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
