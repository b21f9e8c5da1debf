"""Idempotency keys in SQLite."""

from __future__ import annotations

import sqlite3

from attrs import astuple

from hermes_trio.core.records import IdempotencyRecord

# An update that changes nothing makes the row that was there first come back.
_CLAIM = """
    INSERT INTO claims (principal, route, key, fingerprint, run_id, made_at) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET key = key
    RETURNING principal, route, key, fingerprint, run_id, made_at
"""


def claim(connection: sqlite3.Connection, wanted: IdempotencyRecord) -> IdempotencyRecord:
    """Keep a claim, or get the one that was there first."""
    [row] = connection.execute(_CLAIM, astuple(wanted)).fetchall()
    return IdempotencyRecord(*row)


def unclaim(connection: sqlite3.Connection, made: IdempotencyRecord) -> None:
    """Remove a claim, if it is this one."""
    connection.execute(
        "DELETE FROM claims WHERE principal = ? AND route = ? AND key = ? AND run_id = ?",
        (made.principal, made.route, made.key, made.run_id),
    )
