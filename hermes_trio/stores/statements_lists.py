"""Lists of runs in SQLite, page by page."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from hermes_trio.core.records import LiveRun, RunEnd, RunPage, RunQuery
from hermes_trio.stores.codec import clamped
from hermes_trio.stores.records import read_end, read_header

# Of what is known of the runs of one page. A single header may hold images.
MAX_BYTES = 16_000_000

# The conditions can all be checked in the index.
_NEWEST_FIRST = """
    SELECT run_id, status = 'in_progress', CAST(header AS BLOB), CAST(outcome AS BLOB), ended_after FROM runs
    WHERE principal = :principal AND hidden = 0 AND listed = 1 AND (created_at, run_id) < (:created_at, :run_id)
        AND (:session_id = '' OR session_id = :session_id)
        AND (:kinds = '[]' OR kind IN (SELECT value FROM json_each(:kinds)))
        AND CASE status WHEN 'in_progress' THEN :live
            ELSE status || ' ' || reason IN (SELECT value FROM json_each(:ends)) END
    ORDER BY created_at DESC, run_id DESC LIMIT :limit
"""
_OLDEST_FIRST = _NEWEST_FIRST.replace("run_id) < (", "run_id) > (").replace(" DESC", "")


def load(connection: sqlite3.Connection, principal: str, query: RunQuery) -> RunPage:
    """Some runs in order."""
    asked = {**_conditions(query), "principal": principal}
    runs: list[LiveRun | RunEnd] = []
    size = 0
    for row in connection.execute(_NEWEST_FIRST if query.newest_first else _OLDEST_FIRST, asked):
        size += len(row[2])
        if runs and (len(runs) == query.limit or size > MAX_BYTES):
            return RunPage(tuple(runs), has_more=True)
        run = _read(*row)
        if run.header.is_stored:  # rows from before there were lists do not say so themselves
            runs.append(run)
    return RunPage(tuple(runs), has_more=False)


def _conditions(query: RunQuery) -> dict[str, Any]:
    return {
        "created_at": query.after.created_at,
        "run_id": query.after.run_id,
        "session_id": query.session_id,
        "kinds": json.dumps(sorted(query.kinds)),
        "live": query.live,
        "ends": json.dumps([f"{status} {reason}" for status, reason in query.ends]),
        "limit": clamped(query.limit) + 1,  # one more tells whether there are more
    }


def _read(run_id: str, is_live: int, header: bytes, outcome: bytes, ended_after: float) -> LiveRun | RunEnd:
    said = read_header(header, run_id)
    return LiveRun(said) if is_live else RunEnd(said, *read_end(outcome, ended_after, run_id))
