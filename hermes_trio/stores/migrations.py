"""The schema, as the list of steps that led to it.

A step that has been released is never changed; a new need is a new step at the end. The number of steps taken is
kept in ``PRAGMA user_version``.
"""

from __future__ import annotations

import sqlite3

from hermes_trio.stores.contract import StoreError

Step = tuple[str, ...]

STEPS: tuple[Step, ...] = (
    (
        """
        CREATE TABLE sessions (
            principal TEXT NOT NULL,
            session_id TEXT NOT NULL,
            created_at REAL NOT NULL,
            updated_at REAL NOT NULL,
            PRIMARY KEY (principal, session_id)
        )
        """,
        """
        CREATE TABLE turns (
            principal TEXT NOT NULL,
            run_id TEXT NOT NULL,
            session_id TEXT NOT NULL,
            model TEXT NOT NULL,
            status TEXT NOT NULL,
            reason TEXT NOT NULL,
            started_at REAL NOT NULL,
            ended_at REAL NOT NULL,
            usage TEXT NOT NULL,
            PRIMARY KEY (principal, run_id),
            FOREIGN KEY (principal, session_id) REFERENCES sessions (principal, session_id)
        )
        """,
        """
        CREATE TABLE messages (
            principal TEXT NOT NULL,
            session_id TEXT NOT NULL,
            n INTEGER NOT NULL,
            run_id TEXT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (principal, session_id, n),
            FOREIGN KEY (principal, session_id) REFERENCES sessions (principal, session_id),
            FOREIGN KEY (principal, run_id) REFERENCES turns (principal, run_id)
        )
        """,
        # One row that the health check writes again and again.
        "CREATE TABLE probe (id INTEGER PRIMARY KEY CHECK (id = 1), checked_at REAL NOT NULL)",
    ),
)


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
