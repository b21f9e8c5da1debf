"""Forgetting in SQLite: what a client deletes, and what has been kept long enough.

A run that is forgotten loses its record, its log and its claims. While later runs continue it, a stub without content
stays, hidden, as the link to what was said before it; the stub goes with the last of them. What was said stays where
it belongs, in the session.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import TypeVar

from attrs import frozen

from hermes_trio.core.outcome import Reason, Status
from hermes_trio.core.records import PurgeResult, Retention
from hermes_trio.stores import statements_conversations as conversations
from hermes_trio.stores import statements_logs as logs

T = TypeVar("T")

# Of each kind in one call, so that writers do not wait long.
MAX_AT_ONCE = 1000

_HIDE = """
    UPDATE runs SET hidden = 1, logged = 0, size = 0, header = x'', items = x'', outcome = ''
    WHERE principal = ? AND run_id = ? AND hidden = 0 AND status <> 'in_progress'
"""
# The row stays: its damaged header is for people to look at, and its id is not to be used again. Only when it is a link
# to what was before it does it go, as every stub does, with the last run that needs the link.
_GIVE_UP = """
    UPDATE runs SET hidden = 1, status = :status, reason = :reason, owner = ''
    WHERE principal = :principal AND run_id = :run_id
"""
_REMOVE_STUB = """
    DELETE FROM runs WHERE principal = ? AND run_id = ? AND hidden = 1 AND NOT EXISTS (
        SELECT 1 FROM runs AS later
        WHERE later.principal = runs.principal AND later.parent = runs.run_id AND later.parent <> ''
            AND later.run_id <> runs.run_id
    ) RETURNING parent
"""
# A log that answers a repeated request stays for as long as the request may be repeated.
_EXPIRED_LOGS = """
    SELECT principal, run_id FROM runs WHERE logged = 1 AND created_at + ended_after <= ? AND NOT EXISTS (
        SELECT 1 FROM claims WHERE claims.principal = runs.principal AND claims.run_id = runs.run_id
    )
    ORDER BY created_at + ended_after LIMIT ?
"""
_EXPIRED_CLAIMS = """
    DELETE FROM claims WHERE rowid IN (SELECT rowid FROM claims WHERE made_at <= ? ORDER BY made_at LIMIT ?)
"""
_KEPT = "SELECT count(*), coalesce(sum(size), 0) FROM runs WHERE hidden = 0 AND status <> 'in_progress'"
_BY_USE = """
    SELECT principal, run_id, conversation, size FROM runs WHERE hidden = 0 AND status <> 'in_progress'
    ORDER BY accessed_at, principal, run_id LIMIT ?
"""


@frozen
class Look:
    """Somebody looked at a run."""

    principal: str
    run_id: str
    at: float


def note(connection: sqlite3.Connection, looks: tuple[Look, ...]) -> None:
    """Write down when runs were last used."""
    if not looks:
        return
    connection.executemany(
        "UPDATE runs SET accessed_at = max(accessed_at, ?) WHERE principal = ? AND run_id = ?",
        ((look.at, look.principal, look.run_id) for look in looks),
    )


def after_notes(
    connection: sqlite3.Connection, looks: tuple[Look, ...], work: Callable[[sqlite3.Connection], T]
) -> T:
    """A job that takes along when runs were last used."""
    note(connection, looks)
    return work(connection)


def delete(connection: sqlite3.Connection, principal: str, run_id: str) -> bool:
    """Forget an ended run; False if there is none."""
    if connection.execute(_HIDE, (principal, run_id)).rowcount == 0:
        return False
    _drop_log_and_claims(connection, principal, run_id)
    _remove_stubs(connection, principal, run_id)
    return True


def give_up(connection: sqlite3.Connection, principal: str, run_id: str) -> None:
    """Hide a run in progress that cannot be read, so that nobody waits for it."""
    run = {"principal": principal, "run_id": run_id}
    connection.execute(_GIVE_UP, {**run, "status": str(Status.FAILED), "reason": str(Reason.PROCESS_DIED)})
    _drop_log_and_claims(connection, principal, run_id)


def _drop_log_and_claims(connection: sqlite3.Connection, principal: str, run_id: str) -> None:
    logs.drop(connection, principal, run_id)
    connection.execute("DELETE FROM claims WHERE principal = ? AND run_id = ?", (principal, run_id))


def _remove_stubs(connection: sqlite3.Connection, principal: str, run_id: str) -> None:
    """Remove a stub that nothing continues, then the stub that it continued, and so on."""
    removed = [(run_id,)]
    while removed:
        removed = connection.execute(_REMOVE_STUB, (principal, removed[0][0])).fetchall()


def forget(connection: sqlite3.Connection, retention: Retention, now: float) -> PurgeResult:
    """Remove what has been kept long enough, some of it."""
    claims = connection.execute(_EXPIRED_CLAIMS, (now - retention.idempotency_seconds, MAX_AT_ONCE)).rowcount
    expired = _forget_logs(connection, now - retention.log_seconds)
    return PurgeResult(_forget_runs(connection, retention), expired, claims)


def _forget_logs(connection: sqlite3.Connection, before: float) -> int:
    """Remove whole logs until enough batches are gone; a reader never meets half a log."""
    batches = gone = 0
    for run in connection.execute(_EXPIRED_LOGS, (before, MAX_AT_ONCE)).fetchall():
        if batches >= MAX_AT_ONCE:
            break
        batches += logs.drop(connection, *run)
        connection.execute("UPDATE runs SET logged = 0 WHERE principal = ? AND run_id = ?", run)
        gone += 1
    return gone


def _forget_runs(connection: sqlite3.Connection, retention: Retention) -> int:
    surplus = [*_surplus(connection, retention)]
    for principal, run_id, conversation in surplus:
        delete(connection, principal, run_id)
        if conversation:
            _let_follow(connection, (principal, conversation))
    return len(surplus)


def _let_follow(connection: sqlite3.Connection, place: tuple[str, str]) -> None:
    """A conversation goes with the last of its runs; one that never had a run is not touched."""
    query = "SELECT 1 FROM runs WHERE principal = ? AND conversation = ? AND hidden = 0 LIMIT 1"
    if connection.execute(query, place).fetchone() is None:
        conversations.delete(connection, place)


def _surplus(connection: sqlite3.Connection, retention: Retention) -> Iterator[tuple[str, str, str]]:
    """The runs above the limits with their conversations, least recently used first."""
    count, size = connection.execute(_KEPT).fetchone()
    for principal, run_id, conversation, its_size in connection.execute(_BY_USE, (MAX_AT_ONCE,)).fetchall():
        if not (_is_above(count, retention.max_runs) or _is_above(size, retention.max_bytes)):
            return
        yield principal, run_id, conversation
        count, size = count - 1, size - its_size


def _is_above(value: int, limit: int) -> bool:
    return 0 < limit < value
