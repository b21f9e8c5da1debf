"""Bringing a database up to date. The number of steps it has taken is kept in ``PRAGMA user_version``."""

from __future__ import annotations

import sqlite3

from hermes_trio.stores.base import StoreError
from hermes_trio.stores.schema import STEPS, Step


def migrate(connection: sqlite3.Connection, steps: tuple[Step, ...] = STEPS) -> None:
    """Take the steps that a database has not taken yet, each in a transaction of its own.

    Raises:
        StoreError: the database has taken more steps than this program knows.
    """
    version = schema_version(connection)
    if version > len(steps):
        raise StoreError(
            f"the database has schema version {version}, this program knows only up to {len(steps)}"
        )
    for number in range(version, len(steps)):
        _take(connection, steps[number], number + 1)


def schema_version(connection: sqlite3.Connection) -> int:
    """How many steps a database has taken."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _take(connection: sqlite3.Connection, step: Step, version: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in step:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
