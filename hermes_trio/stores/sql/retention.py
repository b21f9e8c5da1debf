"""Queries that delete runs, and those that note their use.

A deleted run loses its record, its items, its log and its idempotency keys. While later runs
continue it, a hidden stub without content stays as the link to the messages before it; the stub is
removed with the last of those runs. The messages themselves stay in the session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hermes_trio.core.dialects.responses import response_item_ids
from hermes_trio.core.log_codec import as_dict
from hermes_trio.core.outcome import Reason, Status
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.codec import RunRow, decode_run
from hermes_trio.stores.retention import RunAccess
from hermes_trio.stores.sql.database import SqlConnection

T = TypeVar("T")

_USE_RUN = """
    UPDATE runs SET accessed_at = :at
    WHERE principal = :principal AND run_id = :run_id AND accessed_at < :at
"""
_USE_SESSION = """
    UPDATE sessions SET used_at = :at WHERE principal = :principal AND used_at < :at AND session_id = (
        SELECT session_id FROM runs WHERE principal = :principal AND run_id = :run_id
    )
"""
_HIDE = """
    UPDATE runs SET hidden = 1, logged = 0, size = 0, log_size = 0, header = '', items = '', outcome = ''
    WHERE principal = ? AND run_id = ? AND hidden = 0 AND status <> 'in_progress'
"""
_RECORD = """
    SELECT 0, CAST(header AS BLOB), CAST(items AS BLOB), CAST(outcome AS BLOB), ended_after FROM runs
    WHERE principal = ? AND run_id = ? AND hidden = 0 AND status <> 'in_progress'
"""
_INDEXED_ITEMS = "SELECT item_id FROM item_index WHERE principal = ? AND run_id = ?"
# The row stays: its damaged header can be examined by hand, and its id must not be reused. If the
# run links to earlier messages, the row is removed like any stub, with the last run that needs the
# link.
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
DELETE_LOG = "DELETE FROM log WHERE principal = :principal AND run_id = :run_id"
# An engine may keep the rows of an expired log out of sight instead, and remove many logs at once.
EXPIRE_LOG = f"{DELETE_LOG} -- expired"


def save_access_times(connection: SqlConnection, accesses: tuple[RunAccess, ...]) -> None:
    """Write down when runs, and with them their sessions, were last used."""
    if accesses:
        rows = [as_dict(access) for access in accesses]
        connection.executemany(_USE_RUN, rows)
        connection.executemany(_USE_SESSION, rows)


def save_access_times_and_run(
    connection: SqlConnection,
    accesses: tuple[RunAccess, ...],
    job: Callable[[SqlConnection], T],
) -> T:
    """Write access times in the transaction of another job."""
    save_access_times(connection, accesses)
    return job(connection)


def delete_run(connection: SqlConnection, principal: str, run_id: str) -> bool:
    """Delete an ended run; return False if there is none."""
    item_ids = _find_item_ids(connection, principal, run_id)
    if connection.execute(_HIDE, (principal, run_id)).rowcount == 0:
        return False
    _delete_log_and_keys(connection, principal, run_id)
    connection.executemany(
        "DELETE FROM item_index WHERE principal = ? AND item_id = ? AND run_id = ?",
        ((principal, item_id, run_id) for item_id in item_ids),
    )
    # Remove its stub if no run continues it, then the stub that it continued, and so on.
    removed = [(run_id,)]
    while removed:
        removed = connection.execute(_REMOVE_STUB, (principal, removed[0][0])).fetchall()
    return True


def give_up_run(connection: SqlConnection, principal: str, run_id: str) -> None:
    """Hide a run in progress that cannot be decoded, so that nothing waits for it."""
    run = {"principal": principal, "run_id": run_id}
    connection.execute(
        _GIVE_UP, {**run, "status": str(Status.FAILED), "reason": str(Reason.PROCESS_DIED)}
    )
    _delete_log_and_keys(connection, principal, run_id)


def _delete_log_and_keys(connection: SqlConnection, principal: str, run_id: str) -> None:
    connection.execute(DELETE_LOG, {"principal": principal, "run_id": run_id})
    connection.execute("DELETE FROM claims WHERE principal = ? AND run_id = ?", (principal, run_id))


def _find_item_ids(connection: SqlConnection, principal: str, run_id: str) -> Sequence[str]:
    """Return the ids under which the index knows items of an ended run."""
    row = connection.execute(_RECORD, (principal, run_id)).fetchone()
    if row is None:
        return ()
    try:
        return response_item_ids(decode_run(RunRow(*row), run_id))
    except StoreError:
        # A damaged record does not tell. Searching the index takes long, but such a record is rare.
        found = connection.execute(_INDEXED_ITEMS, (principal, run_id)).fetchall()
        return [item_id for (item_id,) in found]
