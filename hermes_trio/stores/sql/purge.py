"""Enforcing the retention limits.

Logs and idempotency keys expire by age. An owner who stores more than the quota loses the least
recently used session first, and of a session the least recently used run. If the owner stores too
many bytes, a run goes with its messages: a session that is too large by itself loses its first turns.
If the owner stores too many runs, the messages stay. A session or a conversation goes with the last
of its runs.
"""

from __future__ import annotations

from collections import defaultdict

from attrs import define, evolve, frozen

from hermes_trio.core.records import OwnerUsage, PurgeResult, Retention
from hermes_trio.stores.retention import (
    MAX_PURGED,
    MESSAGE_BYTES,
    StorageQuota,
    fair_quota,
)
from hermes_trio.stores.sql import conversations, sessions
from hermes_trio.stores.sql.database import SqlConnection
from hermes_trio.stores.sql.retention import EXPIRE_LOG, delete_run

# The log that answers a repeated request stays for as long as the request may be repeated.
_EXPIRED_LOGS = """
    SELECT principal, run_id FROM runs WHERE logged = 1 AND created_at + ended_after <= ? AND NOT EXISTS (
        SELECT 1 FROM claims WHERE claims.principal = runs.principal AND claims.run_id = runs.run_id
    )
    ORDER BY created_at + ended_after LIMIT ?
"""
_EXPIRED_KEYS = """
    DELETE FROM claims WHERE (principal, route, key) IN (
        SELECT principal, route, key FROM claims WHERE made_at <= ? ORDER BY made_at LIMIT ?
    )
"""
_USAGES = (
    """
    SELECT principal, count(*), CAST(sum(size + log_size) AS BIGINT) FROM runs WHERE hidden = 0 AND status <> 'in_progress'
    GROUP BY principal
    """,
    "SELECT principal, 0, CAST(sum(size) AS BIGINT) FROM sessions GROUP BY principal",
    "SELECT principal, 0, CAST(sum(size) AS BIGINT) FROM conversations GROUP BY principal",
)
_STORED_BYTES = """
    SELECT CAST(
        (SELECT coalesce(sum(size + log_size), 0) FROM runs WHERE principal = :principal AND hidden = 0) +
        (SELECT coalesce(sum(size), 0) FROM sessions WHERE principal = :principal) +
        (SELECT coalesce(sum(size), 0) FROM conversations WHERE principal = :principal)
    AS BIGINT)
"""
# Sessions and conversations without runs are in the way only where bytes count. Runs that are not
# listed belong to no session.
_LEAST_USED_FIRST = """
    SELECT used_at AS last_use, 'session' AS kind, session_id AS name FROM sessions
    WHERE principal = :principal AND (:bytes OR EXISTS (
        SELECT 1 FROM runs WHERE runs.principal = sessions.principal AND runs.session_id = sessions.session_id
            AND runs.hidden = 0 AND runs.status <> 'in_progress'
    ))
    UNION ALL
    SELECT accessed_at, 'run', run_id FROM runs
    WHERE principal = :principal AND listed = 0 AND hidden = 0 AND status <> 'in_progress'
    UNION ALL
    SELECT created_at, 'conversation', conversation_id FROM conversations
    WHERE principal = :principal AND :bytes AND NOT EXISTS (
        SELECT 1 FROM runs WHERE runs.principal = conversations.principal AND runs.conversation <> ''
            AND runs.conversation = conversations.conversation_id AND runs.hidden = 0
    )
    ORDER BY last_use LIMIT :limit
"""
_RUN = """
    SELECT run_id, session_id, conversation, size + log_size FROM runs
    WHERE principal = ? AND run_id = ? AND hidden = 0 AND status <> 'in_progress'
"""
_RUNS_OF_SESSION = """
    SELECT run_id, session_id, conversation, size + log_size FROM runs
    WHERE principal = ? AND session_id = ? AND hidden = 0 AND status <> 'in_progress'
    ORDER BY accessed_at, run_id LIMIT ?
"""
_HAS_RUNS = """
    SELECT 1 FROM runs WHERE principal = :principal AND session_id = :name AND status = 'in_progress'
    UNION ALL
    SELECT 1 FROM runs
    WHERE principal = :principal AND session_id = :name AND hidden = 0 AND status <> 'in_progress'
    LIMIT 1
"""
_HAS_CONVERSATION_RUNS = """
    SELECT 1 FROM runs WHERE principal = ? AND conversation = ? AND conversation <> '' AND hidden = 0 LIMIT 1
"""
# A stub leads from later runs to the messages before it. Without such messages it leads nowhere.
_REMOVE_FIRST_STUB = """
    DELETE FROM runs WHERE principal = ? AND run_id = ? AND hidden = 1 AND NOT EXISTS (
        SELECT 1 FROM runs AS earlier
        WHERE earlier.principal = runs.principal AND earlier.run_id = runs.parent
    )
"""


def purge(connection: SqlConnection, retention: Retention, now: float) -> PurgeResult:
    """Remove a bounded amount of what the retention limits no longer cover."""
    keys = connection.execute(
        _EXPIRED_KEYS, (now - retention.idempotency_seconds, MAX_PURGED)
    ).rowcount
    logs = _purge_logs(connection, now - retention.log_seconds)
    runs = transcripts = 0
    usages = list_usages(connection)
    quota = fair_quota(usages, retention)
    for usage in usages:
        if not quota.allows(usage):
            reduction = _Reduction(connection, usage, quota, MAX_PURGED - runs - transcripts)
            reduction.run()
            runs, transcripts = runs + reduction.runs, transcripts + reduction.transcripts
    return PurgeResult(runs, logs, keys, transcripts)


def list_usages(connection: SqlConnection) -> list[OwnerUsage]:
    """Return what each owner stores, in sessions and without."""
    totals: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for statement in _USAGES:
        for principal, count, size in connection.execute(statement):
            before = totals[principal]
            totals[principal] = (before[0] + count, before[1] + size)
    return [OwnerUsage(principal, *total) for principal, total in totals.items()]


def stored_bytes(connection: SqlConnection, principal: str) -> int:
    """Return the size of what one owner stores, logs of runs in progress included."""
    [size] = connection.execute(_STORED_BYTES, {"principal": principal}).fetchone()
    return int(size)


def _purge_logs(connection: SqlConnection, before: float) -> int:
    """Delete whole logs until enough batches are gone; a reader never sees half a log."""
    batches = logs = 0
    for run in connection.execute(_EXPIRED_LOGS, (before, MAX_PURGED)).fetchall():
        if batches >= MAX_PURGED:
            break
        batches += connection.execute(EXPIRE_LOG, {"principal": run[0], "run_id": run[1]}).rowcount
        query = "UPDATE runs SET logged = 0, log_size = 0 WHERE principal = ? AND run_id = ?"
        connection.execute(query, run)
        logs += 1
    return logs


@frozen
class _StoredRun:
    run_id: str
    session_id: str
    conversation: str
    size: int


@define
class _Reduction:
    """Removes what one owner stores beyond the quota, up to a number of records."""

    _connection: SqlConnection
    _usage: OwnerUsage
    _quota: StorageQuota
    _budget: int
    runs: int = 0
    transcripts: int = 0  # sessions and conversations that had no runs

    def run(self) -> None:
        """Remove records, least recently used first."""
        parameters = {
            "principal": self._usage.principal,
            "bytes": self._is_too_large,
            "limit": self._budget,
        }
        units = self._connection.execute(_LEAST_USED_FIRST, parameters).fetchall()
        for _, kind, name in units:
            if self._is_done:
                return
            if kind == "session":
                self._reduce_session(name)
            elif kind == "conversation":
                self._remove_conversation(name)
                self.transcripts += 1
            else:
                for run in self._find_runs(_RUN, name):
                    self._remove_run(run)

    @property
    def _is_done(self) -> bool:
        return self._quota.allows(self._usage) or self.runs + self.transcripts >= self._budget

    @property
    def _is_too_large(self) -> bool:
        return self._quota.size is not None and self._usage.size > self._quota.size

    def _find_runs(self, query: str, *values: object) -> list[_StoredRun]:
        rows = self._connection.execute(query, (self._usage.principal, *values)).fetchall()
        return [_StoredRun(*row) for row in rows]

    def _reduce_session(self, session_id: str) -> None:
        runs = self._find_runs(_RUNS_OF_SESSION, session_id, self._budget - self.runs)
        for run in runs:
            if self._is_done:
                break
            self._remove_run(run)
        key = {"principal": self._usage.principal, "name": session_id}
        if not (runs or self._is_too_large) or self._connection.execute(_HAS_RUNS, key).fetchone():
            return
        self._free(sessions.delete_rows(self._connection, (self._usage.principal, session_id)))
        self.transcripts += not runs

    def _remove_run(self, run: _StoredRun) -> None:
        is_too_large, owner = self._is_too_large, self._usage.principal
        delete_run(self._connection, owner, run.run_id)
        self._usage = evolve(self._usage, runs=self._usage.runs - 1)
        self._free(run.size)
        self.runs += 1
        if is_too_large:
            # The messages of the run go, too, and the stub before them, which then leads nowhere.
            query = "DELETE FROM messages WHERE principal = ? AND run_id = ? RETURNING length(body)"
            rows = self._connection.execute(query, (owner, run.run_id)).fetchall()
            total = sum(size + MESSAGE_BYTES for (size,) in rows)
            self._connection.execute(
                "UPDATE sessions SET size = size - ?, message_count = message_count - ?"
                " WHERE principal = ? AND session_id = ?",
                (total, len(rows), owner, run.session_id),
            )
            self._connection.execute(_REMOVE_FIRST_STUB, (owner, run.run_id))
            self._free(total)
        key = (owner, run.conversation)
        if (
            run.conversation
            and not self._connection.execute(_HAS_CONVERSATION_RUNS, key).fetchone()
        ):
            self._remove_conversation(run.conversation)

    def _remove_conversation(self, conversation_id: str) -> None:
        key = (self._usage.principal, conversation_id)
        query = "SELECT size FROM conversations WHERE principal = ? AND conversation_id = ?"
        found = self._connection.execute(query, key).fetchone()
        conversations.delete(self._connection, key)
        self._free(found[0] if found else 0)

    def _free(self, size: int) -> None:
        self._usage = evolve(self._usage, size=self._usage.size - size)
