"""Logs in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing

from hermes_trio.core.records import LogBatch
from hermes_trio.stores.codec import clamped
from hermes_trio.stores.records import read_batch

# What one call of read gives at most. The first batch comes whatever its size.
MAX_BATCHES = 64
MAX_BYTES = 1_000_000

# Somebody who did not hear that a batch is safe sends it again, perhaps with more changes in it by then.
_ADD = """
    INSERT INTO log (principal, run_id, first, count, body) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET count = excluded.count, body = excluded.body WHERE excluded.count > log.count
"""

_READ = """
    SELECT first, count, CAST(body AS BLOB) FROM log
    WHERE principal = :principal AND run_id = :run_id AND first >= coalesce(
        (SELECT max(first) FROM log WHERE principal = :principal AND run_id = :run_id AND first <= :first), 0
    )
    ORDER BY first LIMIT :limit
"""


def append(connection: sqlite3.Connection, batches: Sequence[LogBatch]) -> None:
    """Add the batches of runs that are in progress."""
    runs = {(batch.principal, batch.run_id) for batch in batches}
    live = {run for run in runs if _is_live(connection, run)}
    add(connection, [batch for batch in batches if (batch.principal, batch.run_id) in live])


def _is_live(connection: sqlite3.Connection, run: tuple[str, str]) -> bool:
    query = "SELECT 1 FROM runs WHERE principal = ? AND run_id = ? AND status = 'in_progress'"
    return connection.execute(query, run).fetchone() is not None


def add(connection: sqlite3.Connection, batches: Sequence[LogBatch]) -> None:
    """Add batches, except those that are there already."""
    if not batches:
        return
    rows = ((batch.principal, batch.run_id, batch.first, batch.count, bytes(batch.body)) for batch in batches)
    connection.executemany(_ADD, rows)


def read(connection: sqlite3.Connection, principal: str, run_id: str, first: int) -> tuple[LogBatch, ...]:
    """Some batches from the one that holds a number, or from the next after it."""
    asked = {
        "principal": principal,
        "run_id": run_id,
        "first": clamped(first),
        "limit": MAX_BATCHES + 1,  # the first of them may end before the number
    }
    # Closed at once: a statement that is still open, if only in a traceback, would keep the file from being folded.
    with closing(connection.execute(_READ, asked)) as rows:
        batches = (read_batch(principal, run_id, row) for row in rows)
        return tuple(_bounded(batch for batch in batches if batch.first + batch.count > first))


def _bounded(batches: Iterator[LogBatch]) -> Iterator[LogBatch]:
    size = 0
    for number, batch in enumerate(batches, 1):
        yield batch
        size += len(batch.body)
        if number == MAX_BATCHES or size >= MAX_BYTES:
            return


def drop(connection: sqlite3.Connection, principal: str, run_id: str) -> int:
    """Remove a log; returns how many batches it had."""
    return connection.execute(
        "DELETE FROM log WHERE principal = ? AND run_id = ?", (principal, run_id)
    ).rowcount
