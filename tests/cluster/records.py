"""What the database holds, read with SQL as any other program could, and the rules that it must follow."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen

from hermes_trio.core.changes import Change, Ended
from hermes_trio.core.log_codec import decode_changes

_RUNS = "SELECT run_id, status, reason FROM runs ORDER BY run_id"
_LOG = "SELECT run_id, first, count, body FROM log ORDER BY run_id, first"
_MESSAGES = "SELECT session_id, n, run_id FROM messages ORDER BY session_id, n"
_SNAPSHOT = """
    SELECT run_id, status, reason, ended_after, outcome, header, items FROM runs ORDER BY run_id
"""
_CUT_CONNECTIONS = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@frozen
class Records:
    """A database of nodes."""

    url: str

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of one statement, executed on a connection of its own."""
        import psycopg  # noqa: PLC0415 - not installed everywhere

        with psycopg.connect(self.url, autocommit=True, prepare_threshold=None) as connection:
            return connection.execute(statement.encode(), values).fetchall()

    def snapshot(self) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Return all runs and all logs, to see later whether anything has changed."""
        return self.rows(_SNAPSHOT), self.rows(_LOG)

    def cut_connections(self) -> int:
        """Terminate every other connection to the database, and return how many there were."""
        return int(self.rows(_CUT_CONNECTIONS)[0][0])

    def live_runs(self) -> list[str]:
        """Return the runs that are in progress."""
        return [run_id for run_id, status, _ in self.rows(_RUNS) if status == "in_progress"]

    def interval(self, run_id: str) -> tuple[float, float]:
        """Return when a run began and ended, in seconds since the epoch."""
        found = self.rows("SELECT created_at, ended_after FROM runs WHERE run_id = %s", run_id)
        (began, lasted) = found[0]
        return began, began + lasted

    def violations(self, must_have_ended: bool = True) -> list[str]:
        """Return what is wrong with the records of all runs: nothing, one hopes."""
        runs = {run_id: status for run_id, status, _ in self.rows(_RUNS)}
        logs = defaultdict[str, list[tuple[Any, ...]]](list)
        for run_id, *row in self.rows(_LOG):
            logs[run_id].append(tuple(row))
        found = [
            *(f"{run_id}: a log without a run" for run_id in logs.keys() - runs.keys()),
            *(problem for run_id in logs for problem in check_log(run_id, logs[run_id], runs)),
            *check_messages(self.rows(_MESSAGES)),
        ]
        if must_have_ended:
            live = (run_id for run_id, status in runs.items() if status == "in_progress")
            found += [f"{run_id}: still in progress" for run_id in live]
        return found


def check_log(
    run_id: str, batches: Sequence[tuple[Any, ...]], runs: dict[str, str]
) -> Iterator[str]:
    """One continuous log, with one end, which is the last change of a run that has ended."""
    changes = list[Change]()
    for first, count, body in batches:
        decoded = decode_changes(bytes(body))
        if len(decoded) != count:
            yield f"{run_id}: a batch of {count} changes holds {len(decoded)}"
        if first != len(changes):
            yield f"{run_id}: a batch begins with change {first} instead of {len(changes)}"
        changes += decoded
    ends = sum(isinstance(change, Ended) for change in changes)
    expected = runs.get(run_id, "in_progress") != "in_progress"
    if ends != expected:
        yield f"{run_id} is {runs.get(run_id)}, and its log has {ends} ends"
    elif ends and not isinstance(changes[-1], Ended):
        yield f"{run_id}: the log goes on after its end"


def check_messages(rows: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    """The messages of a session are numbered without a gap, and each run has all of its own together."""
    sessions = defaultdict[str, list[tuple[int, str]]](list)
    for session_id, n, run_id in rows:
        sessions[session_id].append((n, run_id))
    for session_id, numbered in sessions.items():
        if [n for n, _ in numbered] != list(range(len(numbered))):
            yield f"session {session_id}: numbered {[n for n, _ in numbered]}"
        runs = [run_id for _, run_id in numbered]
        changes = sum(one != other for one, other in itertools.pairwise(runs))
        if changes + 1 != len(set(runs)):
            yield f"session {session_id}: the messages of its runs are mixed: {runs}"
