"""Read the new batches in the logs of many runs with one statement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hermes_trio.core.records import LogBatch, LogCursor, LogProgress
from hermes_trio.stores.codec import clamp_int
from hermes_trio.stores.sql.database import SqlConnection

MAX_BYTES = 1_000_000
"""What one call returns at most; the batch that reaches the limit is returned whole."""

MAX_BATCHES = 4096
MIN_BATCHES = 64
"""Of one log; with few cursors more, because the limit on all is what matters then."""

# A log is in the partition of the day on which its run began. Its batches are ranked, and those of
# one rank in all logs come before those of the next, so that a long log does not keep the others
# waiting. Bodies are not read before it is known which are returned: their length is stored apart.
_FOLLOW = """
    SELECT n, is_live, first, count, CASE WHEN fits THEN body END, found FROM (
        SELECT n, is_live, rank, first, count, body,
            count(rank) OVER (PARTITION BY n) AS found,
            rank <= :limit AND sum(length(body)) OVER (ORDER BY rank, n) - length(body) < :bytes AS fits
        FROM (
            SELECT wanted.n, runs.status = 'in_progress' AS is_live,
                batch.rank, batch.first, batch.count, batch.body
            FROM unnest(CAST(:principals AS text[]), CAST(:run_ids AS text[]), CAST(:firsts AS bigint[]))
                WITH ORDINALITY AS wanted (principal, run_id, first, n)
            JOIN runs ON runs.principal = wanted.principal AND runs.run_id = wanted.run_id
            LEFT JOIN LATERAL (
                SELECT log.first, log.count, log.body, row_number() OVER (ORDER BY log.first) AS rank
                FROM log
                WHERE log.principal = wanted.principal AND log.run_id = wanted.run_id AND log.day = runs.day
                    AND (runs.logged = 1 OR runs.status = 'in_progress')
                    AND log.first >= coalesce((
                        SELECT earlier.first FROM log AS earlier
                        WHERE earlier.principal = wanted.principal AND earlier.run_id = wanted.run_id
                            AND earlier.day = runs.day AND earlier.first <= wanted.first
                        ORDER BY earlier.first DESC LIMIT 1
                    ), 0)
                    AND log.first + log.count > wanted.first
                ORDER BY log.first LIMIT :limit + 1
            ) AS batch ON true
        ) AS batches
    ) AS chosen
    WHERE fits OR rank = 1 OR rank IS NULL
    ORDER BY n, rank
"""


def follow_logs(connection: SqlConnection, cursors: Sequence[LogCursor]) -> tuple[LogProgress, ...]:
    """Return what is behind each cursor, as far as it fits; at least one batch if there are any.

    The bodies are returned as they are stored. A damaged one concerns the readers of its run, and
    must not fail the others.
    """
    parameters = {
        "principals": [cursor.principal for cursor in cursors],
        "run_ids": [cursor.run_id for cursor in cursors],
        "firsts": [clamp_int(cursor.first) for cursor in cursors],
        "limit": max(MAX_BATCHES // len(cursors), MIN_BATCHES),
        "bytes": MAX_BYTES,
    }
    rows: defaultdict[int, list[Sequence[Any]]] = defaultdict(list)
    for n, *row in connection.execute(_FOLLOW, parameters):
        rows[n].append(row)
    return tuple(_progress(cursor, rows[n]) for n, cursor in enumerate(cursors, 1))


def _progress(cursor: LogCursor, rows: Sequence[Sequence[Any]]) -> LogProgress:
    batches = tuple(
        LogBatch(cursor.principal, cursor.run_id, first, body, count)
        for _, first, count, body, _ in rows
        if body is not None
    )
    is_live, *_, found = rows[0] if rows else (False, 0)
    # A run that has ended is over for its readers only once they have all of its log.
    has_more = found > len(batches)
    return LogProgress(cursor, batches, is_live or has_more, has_more)
