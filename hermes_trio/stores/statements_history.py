"""What was said in a run and before it."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from hermes_trio.core.messages import Message
from hermes_trio.stores.codec import message
from hermes_trio.stores.records import read_header

# One statement, so that it sees one moment. UNION drops rows that came before: even a circle of parents ends.
# The messages of an ended run are those in its session; a run in progress has none there, and its header says
# what the client said. The order of the runs is found by walking from child to parent.
_CHAIN = """
    WITH RECURSIVE chain (run_id, parent, live) AS (
        SELECT run_id, parent, status = 'in_progress' FROM runs WHERE principal = :principal AND run_id = :run_id
        UNION
        SELECT runs.run_id, runs.parent, runs.status = 'in_progress' FROM chain
            JOIN runs ON runs.principal = :principal AND runs.run_id = chain.parent
            WHERE chain.parent <> ''
    )
    SELECT chain.run_id, chain.parent,
        CASE WHEN chain.live THEN (
            SELECT CAST(header AS BLOB) FROM runs WHERE runs.principal = :principal AND runs.run_id = chain.run_id
        ) END,
        messages.n, CAST(messages.body AS BLOB)
    FROM chain
        LEFT JOIN messages ON messages.principal = :principal AND messages.run_id = chain.run_id
    ORDER BY messages.n
"""

# A run of the Sessions API continues its session, which may have begun as a copy of another. The oldest run of a chain
# is asked for that; one in progress has nothing of its own there yet.
_BEFORE = """
    SELECT n, CAST(body AS BLOB) FROM messages JOIN runs USING (principal, session_id)
    WHERE principal = :principal AND runs.run_id = :run_id AND runs.kind = 'sessions' AND n < coalesce(
        (SELECT min(own.n) FROM messages AS own WHERE own.principal = :principal AND own.run_id = :run_id), n + 1
    )
    ORDER BY n
"""

Row = tuple[str, str, Any, Any, Any]


def load(connection: sqlite3.Connection, principal: str, run_id: str) -> tuple[Message, ...]:
    """The messages of a run and of all that it continues, oldest first; none for an unknown run."""
    rows_of: defaultdict[str, list[Row]] = defaultdict(list)
    for row in connection.execute(_CHAIN, {"principal": principal, "run_id": run_id}):
        rows_of[row[0]].append(row)
    runs = [*_upwards(rows_of, run_id)]
    own = tuple(said for run in reversed(runs) for row in rows_of[run] for said in _messages(row))
    return (*_before(connection, principal, runs[-1]), *own) if runs else ()


def _before(connection: sqlite3.Connection, principal: str, run_id: str) -> Iterator[Message]:
    rows = connection.execute(_BEFORE, {"principal": principal, "run_id": run_id}).fetchall()
    return (message(body, n, f"the session of run {run_id!r}") for n, body in rows)


def _upwards(rows_of: dict[str, list[Row]], run_id: str) -> Iterator[str]:
    """From a run to the one it continues and so on, each once."""
    seen: set[str] = set()
    while run_id in rows_of and run_id not in seen:
        seen.add(run_id)
        yield run_id
        run_id = rows_of[run_id][0][1]


def _messages(row: Row) -> tuple[Message, ...]:
    run_id, _, header, n, body = row
    if header is not None:
        return read_header(header, run_id).messages
    return () if body is None else (message(body, n, f"run {run_id!r}"),)
