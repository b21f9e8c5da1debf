"""Read stored records directly from the database file."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

from attrs import frozen

from tests.support.server_process import ServerProcess


@frozen
class StoredTurn:
    """One turn of a session."""

    status: str
    reason: str
    messages: tuple[dict[str, Any], ...]

    @property
    def roles(self) -> list[str]:
        """The roles of the messages, in order."""
        return [message["role"] for message in self.messages]

    def said_by(self, role: str) -> str:
        """Return the text of all messages of a role."""
        return "".join(message["content"] for message in self.messages if message["role"] == role)


def turns(server: ServerProcess, session: str) -> list[StoredTurn]:
    """Return the turns of a session, oldest first."""
    with closing(_connect(server)) as database, database:
        query = (
            "SELECT run_id, status, reason FROM runs WHERE session_id = ? AND status <> 'in_progress'"
            " ORDER BY created_at + ended_after"
        )
        rows = database.execute(query, (session,)).fetchall()
        return [
            StoredTurn(status, reason, _messages(database, run)) for run, status, reason in rows
        ]


def count(server: ServerProcess) -> int:
    """Return the number of all turns."""
    with closing(_connect(server)) as database:
        query = "SELECT count(*) FROM runs WHERE status <> 'in_progress'"
        return int(database.execute(query).fetchone()[0])


def unfinished(server: ServerProcess) -> int:
    """Return the number of runs that are stored as in progress."""
    with closing(_connect(server)) as database:
        query = "SELECT count(*) FROM runs WHERE status = 'in_progress'"
        return int(database.execute(query).fetchone()[0])


def _connect(server: ServerProcess) -> sqlite3.Connection:
    path = server.plan.data_dir / "hermes.db"
    return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5)


def _messages(database: sqlite3.Connection, run: str) -> tuple[dict[str, Any], ...]:
    rows = database.execute("SELECT body FROM messages WHERE run_id = ? ORDER BY n", (run,))
    return tuple(json.loads(body) for (body,) in rows)
