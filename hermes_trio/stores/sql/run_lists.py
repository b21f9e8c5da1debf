"""Lists of runs, filtered by status, API and session.

A list is a merge of ranges of an index. In such a range every run has the same API and ended in the
same way, and the runs are in the order of the list. A page therefore costs about as much as the runs
on it, however many there are and however few match.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

import structlog
from attrs import evolve, frozen

from hermes_trio.core.log_codec import as_dict
from hermes_trio.core.records import ALL_ENDS, LiveRun, RunCursor, RunEnd, RunPage, RunQuery
from hermes_trio.stores.codec import clamp_int, decode_end, decode_header
from hermes_trio.stores.sql.database import SqlConnection, is_damage

log = structlog.get_logger(__name__)

MAX_PAGE_BYTES = 16_000_000
"""Size of the headers in one page of a list. A single header may contain images."""


# -- statements --


def _range(condition: str) -> str:
    """Return the query for one range, newest run first."""
    return f"""
        SELECT created_at, run_id FROM runs
        WHERE principal = :principal AND hidden = 0 AND listed = 1 AND {condition}
            AND (created_at, run_id) < (:created_at, :run_id)
        ORDER BY created_at DESC, run_id DESC LIMIT :limit
    """  # noqa: S608 - only constants of this module


def _oldest_first(statement: str) -> str:
    return statement.replace("run_id) < (", "run_id) > (").replace(" DESC", "")


def _next_group(condition: str) -> str:
    """Return the query for the group that follows another one.

    SQLite looks for the first entry that is not less, so the time is needed to skip the whole group.
    """
    return f"""
        SELECT kind, status, reason FROM runs
        WHERE principal = :principal AND hidden = 0 AND listed = 1 AND status <> 'in_progress' AND {condition}
            AND (kind, status, reason, created_at) > (:kind, :status, :reason, :latest)
        ORDER BY kind, status, reason, created_at LIMIT 1
    """  # noqa: S608 - only constants of this module


_IN_GROUP = "status <> 'in_progress' AND kind = :kind AND status = :status AND reason = :reason"
_IN_SESSION = "session_id = :session_id"

_ALL = _range("TRUE")
# The runs in progress are few, so that the other conditions need no index.
_LIVE = _range(
    "status = 'in_progress' AND (:session_id = '' OR session_id = :session_id)"
    " AND (:waiting = -1 OR waiting = :waiting)"
    " AND (:kinds = '[]' OR kind IN (SELECT value FROM json_each(:kinds)))"
)
_GROUP = _range(_IN_GROUP)
_GROUP_IN_SESSION = _range(f"{_IN_SESSION} AND {_IN_GROUP}")
_NEXT_GROUP = _next_group("TRUE")
_NEXT_GROUP_IN_SESSION = _next_group(_IN_SESSION)
_ROW = """
    SELECT status = 'in_progress', CAST(header AS BLOB), CAST(outcome AS BLOB), ended_after, waiting
    FROM runs
    WHERE principal = ? AND run_id = ?
"""


# -- pages --


def list_page(connection: SqlConnection, principal: str, query: RunQuery) -> RunPage:
    """Return one page of runs. Those that cannot be read are left out, and named in the log."""
    runs: list[LiveRun | RunEnd] = []
    size = 0
    for cursor in _find_cursors(connection, principal, query):
        try:
            length, run = _read_run(connection, principal, cursor.run_id)
        except Exception as error:
            if not is_damage(error):
                raise
            log.error(
                "a run that cannot be read is left out", run_id=cursor.run_id, error=str(error)
            )
            continue
        size += length
        if runs and (len(runs) >= query.limit or size > MAX_PAGE_BYTES):
            return RunPage(tuple(runs), has_more=True)
        if run.header.is_stored:  # the column "listed" is always 1 in rows older than the column
            runs.append(run)
    return RunPage(tuple(runs), has_more=False)


def _read_run(
    connection: SqlConnection, principal: str, run_id: str
) -> tuple[int, LiveRun | RunEnd]:
    """Return the size of a run's header, and the run."""
    row = connection.execute(_ROW, (principal, run_id)).fetchone()
    is_live, body, outcome, ended_after, is_waiting = row
    header = decode_header(body, run_id)
    if is_live:
        return len(body), LiveRun(header, bool(is_waiting))
    return len(body), RunEnd(header, *decode_end(outcome, ended_after, run_id))


def _find_cursors(
    connection: SqlConnection, principal: str, query: RunQuery
) -> Iterator[RunCursor]:
    """Yield the positions of all runs in a list, reading about a page of them at a time."""
    count = clamp_int(query.limit) + 1  # one more shows whether there is another page
    while True:
        ranges = [
            [RunCursor(*row) for row in connection.execute(*each).fetchall()]
            for each in find_ranges(connection, principal, query)
        ]
        found = [*islice(heapq.merge(*ranges, reverse=query.newest_first), count)]
        yield from found
        if len(found) < count:
            return
        query = evolve(query, after=found[-1])


# -- ranges --


@frozen
class RunGroup:
    """The runs of one API that ended in the same way."""

    kind: str = ""
    status: str = ""
    reason: str = ""


def find_ranges(
    connection: SqlConnection, principal: str, query: RunQuery
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a statement and its parameters for each range that a list is made of."""
    parameters = {
        "principal": principal,
        "created_at": query.after.created_at,
        "run_id": query.after.run_id,
        "session_id": query.session_id,
        "kinds": json.dumps(sorted(query.kinds)),
        "waiting": -1 if query.waiting is None else int(query.waiting),
        "latest": math.inf,
        "limit": clamp_int(query.limit) + 1,
    }
    for statement, group in _choose_ranges(connection, parameters, query):
        ordered = statement
        if not query.newest_first:
            ordered = statement.replace("run_id) < (", "run_id) > (").replace(" DESC", "")
        yield ordered, parameters | as_dict(group)


def _choose_ranges(
    connection: SqlConnection, parameters: dict[str, Any], query: RunQuery
) -> Iterator[tuple[str, RunGroup]]:
    is_filtered = query.kinds or query.session_id or query.waiting is not None
    if query.live and query.ends == ALL_ENDS and not is_filtered:
        yield _ALL, RunGroup()
        return
    if query.live:
        yield _LIVE, RunGroup()
    if query.ends:
        # One look at the index finds the next of the groups that exist.
        find_next = _NEXT_GROUP_IN_SESSION if query.session_id else _NEXT_GROUP
        group = RunGroup()
        while row := connection.execute(find_next, parameters | as_dict(group)).fetchone():
            group = RunGroup(*row)
            is_wanted = not query.kinds or group.kind in query.kinds
            if is_wanted and (group.status, group.reason) in query.ends:
                yield (_GROUP_IN_SESSION if query.session_id else _GROUP), group
