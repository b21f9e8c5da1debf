"""Runs in SQLite: their beginning, their end, and what is asked of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from hermes_trio.core.records import EndedRun, LiveRun, LogBatch, NoRun, RunHeader
from hermes_trio.core.sessions import COMPRESSED, preview
from hermes_trio.stores import statements_conversations as conversations
from hermes_trio.stores import statements_forget as forgetting
from hermes_trio.stores import statements_logs as logs
from hermes_trio.stores import statements_session_objects as objects
from hermes_trio.stores import statements_sessions as sessions
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.codec import item_body, legible
from hermes_trio.stores.records import (
    RunRow,
    WrittenRun,
    read_header,
    read_run,
    session_of,
    write_header,
    write_run,
)

# A run that has ended is left as it is, whoever comes second. One that has words in a session has ended, though its record may be
# gone.
_BEGIN = """
    INSERT INTO runs (principal, run_id, kind, session_id, parent, conversation, model, status, reason,
        created_at, ended_after, owner, accessed_at, listed, header)
    SELECT :principal, :run_id, :kind, :session_id, :parent, :conversation, :model, 'in_progress', '',
        :created_at, 0, :owner, :created_at, :listed, :header
    WHERE NOT EXISTS (SELECT 1 FROM messages WHERE principal = :principal AND run_id = :run_id)
    ON CONFLICT DO NOTHING
"""
_END = """
    INSERT INTO runs (principal, run_id, kind, session_id, parent, conversation, model, status, reason,
        created_at, ended_after, owner, accessed_at, logged, listed, size, header, items, outcome)
    SELECT :principal, :run_id, :kind, :session_id, :parent, :conversation, :model, :status, :reason,
        :created_at, :ended_after, '', :created_at + :ended_after, :has_tail, :listed, :size,
        :header, :items, :outcome
    WHERE NOT EXISTS (SELECT 1 FROM messages WHERE principal = :principal AND run_id = :run_id)
    ON CONFLICT DO UPDATE SET
        session_id = excluded.session_id, status = excluded.status, reason = excluded.reason,
        ended_after = excluded.ended_after, owner = '', accessed_at = excluded.accessed_at,
        logged = excluded.logged OR EXISTS (
            SELECT 1 FROM log WHERE log.principal = runs.principal AND log.run_id = runs.run_id
        ),
        size = excluded.size, header = excluded.header, items = excluded.items, outcome = excluded.outcome
    WHERE runs.status = 'in_progress'
"""


def begin(connection: sqlite3.Connection, header: RunHeader, owner: str) -> None:
    """Make a run, unless it is there or was."""
    row = {**_facts(header), "owner": owner, "header": write_header(header)}
    is_new = connection.execute(_BEGIN, row).rowcount == 1
    if is_new and header.is_stored:
        sessions.open_session(connection, _opened(header, header.session_id, header.stamp.created_at))


def _opened(header: RunHeader, session_id: str, used_at: float) -> sessions.Opened:
    return sessions.Opened(
        principal=header.principal,
        session_id=session_id,
        kind=header.kind,
        began_at=header.stamp.created_at,
        used_at=used_at,
        model=legible(header.stamp.model),
        preview=legible(preview(header.messages)),
        parent=header.session_id if session_id != header.session_id else "",
    )


def _facts(header: RunHeader) -> dict[str, Any]:
    return {
        "principal": header.principal,
        "run_id": header.run_id,
        "kind": header.kind,
        "session_id": header.session_id,
        "parent": header.parent,
        "conversation": header.conversation,
        "model": legible(header.stamp.model),
        "created_at": header.stamp.created_at,
        "listed": header.is_stored,
    }


def end(
    connection: sqlite3.Connection,
    ended: EndedRun,
    tail: Sequence[LogBatch],
    items: Sequence[Mapping[str, Any]],
) -> None:
    """Give a run its terminal form, unless it has one or had."""
    written = write_run(ended)
    added = [item_body(item) for item in items]
    header = ended.header
    if not _settle(connection, ended, written, bool(tail)):
        return
    if header.is_stored:
        sessions.append(connection, _said(ended, written))
        _move_on(connection, ended)
    logs.add(connection, tail)
    if header.conversation:
        place = (header.principal, header.conversation)
        conversations.ensure(connection, place, header.stamp.created_at)
        conversations.append(connection, place, added)


def _settle(connection: sqlite3.Connection, ended: EndedRun, written: WrittenRun, has_tail: bool) -> bool:
    """Write the record; False if this run has ended before."""
    row = {
        **_facts(ended.header),
        "session_id": session_of(ended),
        "status": str(ended.outcome.status),
        "reason": str(ended.outcome.reason),
        "ended_after": ended.ended_after,
        "has_tail": has_tail,
        "size": written.size,
        "header": written.header,
        "items": written.items,
        "outcome": written.outcome,
    }
    return connection.execute(_END, row).rowcount == 1


def _said(ended: EndedRun, written: WrittenRun) -> sessions.Said:
    ended_at = ended.header.stamp.created_at + ended.ended_after
    opened = _opened(ended.header, session_of(ended), ended_at)
    return sessions.Said(opened, ended.header.run_id, written.messages, written.counters)


def _move_on(connection: sqlite3.Connection, ended: EndedRun) -> None:
    """A session whose agent went on in another one has ended."""
    header = ended.header
    if session_of(ended) != header.session_id:
        ended_at = header.stamp.created_at + ended.ended_after
        objects.end(connection, (header.principal, header.session_id), COMPRESSED, ended_at)


def find(connection: sqlite3.Connection, principal: str, run_id: str) -> LiveRun | EndedRun | NoRun:
    """A visible run as it stands."""
    # As blobs: should a column hold broken text, the driver would fail and could not say in which run.
    found = connection.execute(
        "SELECT status = 'in_progress', CAST(header AS BLOB), CAST(items AS BLOB), CAST(outcome AS BLOB), ended_after"
        " FROM runs WHERE principal = ? AND run_id = ? AND hidden = 0",
        (principal, run_id),
    ).fetchone()
    if found is None:
        return NoRun()
    row = RunRow(*found)
    return LiveRun(read_header(row.header, run_id)) if row.is_live else read_run(row, run_id)


def latest(connection: sqlite3.Connection, principal: str, conversation: str) -> LiveRun | EndedRun | NoRun:
    """The visible run that began last in a conversation."""
    found = connection.execute(
        "SELECT run_id FROM runs WHERE principal = ? AND conversation = ? AND hidden = 0"
        " ORDER BY created_at DESC, rowid DESC LIMIT 1",
        (principal, conversation),
    ).fetchone()
    return NoRun() if found is None else find(connection, principal, found[0])


@frozen
class Abandoned:
    """What dead processes left behind."""

    headers: tuple[RunHeader, ...]  # in the order the runs began
    damaged: tuple[StoreError, ...]  # one for each run that was given up


def abandoned(connection: sqlite3.Connection, owner: str) -> Abandoned:
    """The runs in progress that somebody else began; those that cannot be read are given up.

    Claims go for which no run ever began: the process that made them died in between, and nobody could use them.
    """
    connection.execute(
        "DELETE FROM claims WHERE NOT EXISTS (SELECT 1 FROM runs"
        " WHERE runs.principal = claims.principal AND runs.run_id = claims.run_id)"
    )
    query = (
        "SELECT principal, run_id, CAST(header AS BLOB) FROM runs WHERE status = 'in_progress' AND owner <> ?"
        " ORDER BY created_at, principal, run_id"
    )
    headers: list[RunHeader] = []
    damaged: list[StoreError] = []
    for principal, run_id, header in connection.execute(query, (owner,)).fetchall():
        try:
            headers.append(read_header(header, run_id))
        except StoreError as error:
            forgetting.give_up(connection, principal, run_id)
            damaged.append(error)
    return Abandoned(tuple(headers), tuple(damaged))
