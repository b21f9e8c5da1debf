"""Remembered approvals in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from hermes_trio.core.approvals import Grant
from hermes_trio.stores.codec import legible


def is_granted(
    connection: sqlite3.Connection, principal: str, session_id: str, patterns: tuple[str, ...]
) -> bool:
    """Whether all of the patterns are granted, for this session or for all."""
    query = "SELECT 1 FROM approvals WHERE principal = ? AND session_id IN ('', ?) AND pattern = ? LIMIT 1"
    return bool(patterns) and all(
        connection.execute(query, (principal, session_id, legible(pattern))).fetchone()
        for pattern in patterns
    )


def grant(connection: sqlite3.Connection, grants: Sequence[Grant]) -> None:
    """Remember; what is remembered already stays as it is."""
    connection.executemany(
        "INSERT INTO approvals (principal, session_id, pattern, made_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        ((each.principal, each.session_id, legible(each.pattern), each.made_at) for each in grants),
    )


def grants(connection: sqlite3.Connection, principal: str) -> tuple[Grant, ...]:
    """Everything that a principal granted, oldest first."""
    query = (
        "SELECT principal, session_id, pattern, made_at FROM approvals WHERE principal = ?"
        " ORDER BY made_at, session_id, pattern"
    )
    return tuple(Grant(*row) for row in connection.execute(query, (principal,)))


def revoke(connection: sqlite3.Connection, principal: str, session_id: str, pattern: str) -> bool:
    """Forget one; False if there is none."""
    query = "DELETE FROM approvals WHERE principal = ? AND session_id = ? AND pattern = ?"
    return connection.execute(query, (principal, session_id, legible(pattern))).rowcount > 0
