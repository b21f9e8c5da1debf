"""Queries on runs: their records, logs, history and idempotency keys.

Each function is one job, or a part of one.

Blobs and texts are read as blobs: the driver would fail on invalid text and could not say in which
run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from attrs import astuple, evolve, frozen

from hermes_trio.core.dialects.responses import response_items
from hermes_trio.core.log_codec import as_dict
from hermes_trio.core.messages import Message
from hermes_trio.core.records import (
    EndedRun,
    IdempotencyRecord,
    LiveRun,
    LogBatch,
    NoRun,
    Ownership,
    RunHeader,
)
from hermes_trio.core.sessions import COMPRESSED, build_preview
from hermes_trio.stores.codec import (
    EncodedRun,
    RunRow,
    clamp_int,
    decode_batch,
    decode_header,
    decode_message,
    decode_run,
    encode_header,
    encode_item,
    encode_run,
    escape_surrogates,
    final_session,
)
from hermes_trio.stores.sql import conversations, owners, sessions
from hermes_trio.stores.sql.database import SqlConnection, execute_each

MAX_LOG_BATCHES = 64
MAX_LOG_BYTES = 1_000_000
"""What one read of a log returns at most; the first batch is returned whatever its size."""


# -- records --

# A run that has ended is left as it is. One with messages in a session has ended, even if its
# record is gone.
_BEGIN = """
    INSERT INTO runs (principal, run_id, kind, session_id, parent, conversation, model, status, reason,
        created_at, ended_after, owner, owner_epoch, accessed_at, listed, header)
    SELECT :principal, :run_id, :kind, :session_id, :parent, :conversation, :model, 'in_progress', '',
        :created_at, 0, :owner, :owner_epoch, :created_at, :listed, :header
    WHERE NOT EXISTS (SELECT 1 FROM messages WHERE principal = :principal AND run_id = :run_id)
    ON CONFLICT (principal, run_id) DO NOTHING
"""
# The owner stays: it tells a retry of its own from the end of a run that was taken over.
END = """
    INSERT INTO runs (principal, run_id, kind, session_id, parent, conversation, model, status, reason,
        created_at, ended_after, owner, owner_epoch, accessed_at, logged, listed, size, log_size, header,
        items, outcome)
    SELECT :principal, :run_id, :kind, :session_id, :parent, :conversation, :model, :status, :reason,
        :created_at, :ended_after, :owner, :owner_epoch, :created_at + :ended_after, :has_tail, :listed,
        :size, :log_size, :header, :items, :outcome
    WHERE NOT EXISTS (SELECT 1 FROM messages WHERE principal = :principal AND run_id = :run_id)
    ON CONFLICT (principal, run_id) DO UPDATE SET
        session_id = excluded.session_id, status = excluded.status, reason = excluded.reason,
        ended_after = excluded.ended_after, accessed_at = excluded.accessed_at,
        logged = CASE WHEN excluded.logged = 1 OR EXISTS (
            SELECT 1 FROM log WHERE log.principal = runs.principal AND log.run_id = runs.run_id
        ) THEN 1 ELSE 0 END,
        log_size = excluded.log_size + coalesce((
            SELECT sum(length(log.body)) FROM log WHERE log.principal = runs.principal AND log.run_id = runs.run_id
        ), 0),
        waiting = 0, size = excluded.size, header = excluded.header, items = excluded.items, outcome = excluded.outcome
    WHERE runs.status = 'in_progress'
        AND (:owner = '' OR (runs.owner = :owner AND runs.owner_epoch = :owner_epoch))
"""
INSERT_ITEM = """
    INSERT INTO item_index (principal, item_id, run_id) VALUES (:principal, :item_id, :run_id)
    ON CONFLICT DO NOTHING
"""


def begin(connection: SqlConnection, header: RunHeader, ownership: Ownership) -> bool:
    """Store a run as in progress, unless it exists or once did. Return whether it is new."""
    row = {
        **_columns(header),
        **owners.columns(ownership),
        "header": encode_header(header),
    }
    is_new = connection.execute(_BEGIN, row).rowcount == 1
    if is_new and header.is_stored:
        sessions.record_use(
            connection, _session_use(header, header.session_id, header.stamp.created_at)
        )
    return is_new


@frozen
class EndJob:
    """The end of a run. The ends of many runs take few statements together."""

    ended: EndedRun
    tail: tuple[LogBatch, ...] = ()
    items: tuple[Mapping[str, Any], ...] = ()
    ownership: Ownership | None = None

    def __call__(self, connection: SqlConnection) -> bool:
        """Give the run its terminal form, unless it has one, once had, or has another owner.

        Return False if it has another owner.
        """
        [is_ours] = self.run_together(connection, [self])
        return is_ours

    @staticmethod
    def run_together(connection: SqlConnection, jobs: Sequence[EndJob]) -> list[bool]:
        """Give runs their terminal form. Return, for each, False if it has another owner."""
        # Encode everything first: a run that cannot be encoded must not touch the database.
        endings = [_Ending.encode(job) for job in jobs]
        changes = execute_each(connection, END, [ending.row for ending in endings])
        _save_parts(connection, [end for end, count in zip(endings, changes, strict=True) if count])
        unchanged = [job for job, count in zip(jobs, changes, strict=True) if not count]
        found = owners.find(connection, [job.key for job in unchanged if job.ownership])
        return [job.key not in found or found[job.key].admits(job.ownership) for job in jobs]

    @property
    def key(self) -> owners.RunKey:
        """The principal and the id of the run."""
        return self.ended.header.principal, self.ended.header.run_id


@frozen
class _Ending:
    """The end of a run, ready to be written."""

    job: EndJob
    encoded: EncodedRun
    items: Sequence[tuple[str, str]]

    @classmethod
    def encode(cls, job: EndJob) -> _Ending:
        return cls(job, encode_run(job.ended), [encode_item(item) for item in job.items])

    @property
    def header(self) -> RunHeader:
        return self.job.ended.header

    @property
    def ended_at(self) -> float:
        return self.header.stamp.created_at + self.job.ended.ended_after

    @property
    def row(self) -> dict[str, Any]:
        ended, encoded = self.job.ended, self.encoded
        return {
            **_columns(self.header),
            **owners.columns(self.job.ownership or owners.NOBODY),
            "session_id": final_session(ended),
            "status": str(ended.outcome.status),
            "reason": str(ended.outcome.reason),
            "ended_after": ended.ended_after,
            "has_tail": int(bool(self.job.tail)),
            "size": encoded.size,
            "log_size": sum(len(batch.body) for batch in self.job.tail),
            "header": encoded.header,
            "items": encoded.items,
            "outcome": encoded.outcome,
        }

    @property
    def turn(self) -> sessions.SessionTurn:
        encoded = self.encoded
        use = evolve(
            _session_use(self.header, final_session(self.job.ended), self.ended_at),
            size=encoded.messages_size,
        )
        return sessions.SessionTurn(use, self.header.run_id, encoded.messages, encoded.counters)


def _save_parts(connection: SqlConnection, endings: Sequence[_Ending]) -> None:
    """Save what ended runs leave outside their records: messages, logs and items."""
    stored = [ending for ending in endings if ending.header.is_stored]
    sessions.append_turns(connection, [ending.turn for ending in stored])
    for ending in stored:
        header = ending.header
        if final_session(ending.job.ended) != header.session_id:  # the agent moved on to another
            key = (header.principal, header.session_id)
            sessions.end(connection, key, COMPRESSED, ending.ended_at)
    connection.executemany(
        INSERT_ITEM,
        [
            {
                "principal": ending.header.principal,
                "item_id": item_id,
                "run_id": ending.header.run_id,
            }
            for ending in endings
            for item_id in ending.encoded.item_ids
        ],
    )
    _insert_batches(connection, [batch for ending in endings for batch in ending.job.tail])
    for ending in endings:
        if ending.header.conversation:
            key = (ending.header.principal, ending.header.conversation)
            created_at = ending.header.stamp.created_at
            conversations.create_with_items(connection, key, created_at, ending.items)


def _columns(header: RunHeader) -> dict[str, Any]:
    return {
        "principal": header.principal,
        "run_id": header.run_id,
        "kind": header.kind,
        "session_id": header.session_id,
        "parent": header.parent,
        "conversation": header.conversation,
        "model": escape_surrogates(header.stamp.model),
        "created_at": header.stamp.created_at,
        "listed": int(header.is_stored),
    }


def _session_use(header: RunHeader, session_id: str, used_at: float) -> sessions.SessionUse:
    return sessions.SessionUse(
        principal=header.principal,
        session_id=session_id,
        kind=header.kind,
        created_at=header.stamp.created_at,
        used_at=used_at,
        model=escape_surrogates(header.stamp.model),
        preview=escape_surrogates(build_preview(header.messages)),
        parent=header.session_id if session_id != header.session_id else "",
    )


def find(connection: SqlConnection, principal: str, run_id: str) -> LiveRun | EndedRun | NoRun:
    """Return a visible run."""
    found = connection.execute(
        "SELECT status = 'in_progress', CAST(header AS BLOB), CAST(items AS BLOB), CAST(outcome AS BLOB), ended_after,"
        " waiting FROM runs WHERE principal = ? AND run_id = ? AND hidden = 0",
        (principal, run_id),
    ).fetchone()
    if found is None:
        return NoRun()
    *columns, is_waiting = found
    row = RunRow(*columns)
    if row.is_live:
        return LiveRun(decode_header(row.header, run_id), bool(is_waiting))
    return decode_run(row, run_id)


_FIND_ITEMS = """
    SELECT item_id, run_id FROM item_index
    WHERE principal = ? AND item_id IN (SELECT value FROM json_each(?))
"""


@frozen
class FoundItems:
    """Items by id, and the runs that some of them are from."""

    items: Mapping[str, Mapping[str, Any]]
    run_ids: tuple[str, ...]


def find_items(connection: SqlConnection, principal: str, item_ids: Sequence[str]) -> FoundItems:
    """Return the items with these ids: from the runs that hold them, else from conversations."""
    wanted = json.dumps(list(item_ids))
    indexed = connection.execute(_FIND_ITEMS, (principal, wanted)).fetchall()
    run_ids = tuple(dict.fromkeys(run_id for _, run_id in indexed))
    items = conversations.find_items(connection, principal, wanted)
    known = {item_id for item_id, _ in indexed}
    for run_id in run_ids:
        run = find(connection, principal, run_id)
        if isinstance(run, EndedRun):
            items |= {item["id"]: item for item in response_items(run) if item["id"] in known}
    return FoundItems(items, run_ids)


def find_latest(
    connection: SqlConnection, principal: str, conversation: str
) -> LiveRun | EndedRun | NoRun:
    """Return the visible run of a conversation that began last."""
    found = connection.execute(
        "SELECT run_id FROM runs WHERE principal = ? AND conversation = ? AND hidden = 0"
        " ORDER BY created_at DESC, rowid DESC LIMIT 1",
        (principal, conversation),
    ).fetchone()
    return NoRun() if found is None else find(connection, principal, found[0])


# -- logs --

# A writer that missed the acknowledgement of a batch sends it again, perhaps with more changes by
# then.
INSERT_BATCH = """
    INSERT INTO log (principal, run_id, first, count, body)
    VALUES (:principal, :run_id, :first, :count, :body)
    ON CONFLICT (principal, run_id, first) DO UPDATE SET count = excluded.count, body = excluded.body WHERE excluded.count > log.count
"""
_SET_WAITING = """
    UPDATE runs SET waiting = :waiting WHERE principal = :principal AND run_id = :run_id
"""
READ_LOG = """
    SELECT first, count, CAST(body AS BLOB) FROM log
    WHERE principal = :principal AND run_id = :run_id AND first >= coalesce(
        (SELECT max(first) FROM log WHERE principal = :principal AND run_id = :run_id AND first <= :first), 0
    )
    ORDER BY first LIMIT :limit
"""


def append_log(
    connection: SqlConnection, batches: Sequence[LogBatch], ownership: Ownership | None
) -> frozenset[str]:
    """Append the batches whose runs are in progress and have no other owner.

    Return the ids of the runs that have another owner.
    """
    found = owners.find(connection, [(batch.principal, batch.run_id) for batch in batches])
    ours = {key for key, owner in found.items() if owner.admits(ownership)}
    live = {key for key in ours if found[key].is_live}
    accepted = [batch for batch in batches if (batch.principal, batch.run_id) in live]
    _insert_batches(connection, accepted)
    if waiting := [_waiting_row(batch) for batch in accepted if batch.is_waiting is not None]:
        connection.executemany(_SET_WAITING, waiting)
    return frozenset(run_id for _, run_id in found.keys() - ours)


def _waiting_row(batch: LogBatch) -> dict[str, Any]:
    return {
        "principal": batch.principal,
        "run_id": batch.run_id,
        "waiting": int(bool(batch.is_waiting)),
    }


def _insert_batches(connection: SqlConnection, batches: Sequence[LogBatch]) -> None:
    if not batches:
        return
    connection.executemany(
        INSERT_BATCH, [{**as_dict(batch), "body": bytes(batch.body)} for batch in batches]
    )


def read_log(
    connection: SqlConnection, principal: str, run_id: str, first: int
) -> tuple[LogBatch, ...]:
    """Return a bounded number of batches, from the one that contains change ``first`` or the next after it."""
    parameters = {
        "principal": principal,
        "run_id": run_id,
        "first": clamp_int(first),
        "limit": MAX_LOG_BATCHES + 1,  # the first row may end before the change
    }
    batches: list[LogBatch] = []
    size = 0
    # Closed at once: a statement kept open, if only by a traceback, would prevent a checkpoint.
    with closing(connection.execute(READ_LOG, parameters)) as rows:
        for row in rows:
            batch = decode_batch(principal, run_id, row)
            if batch.first + batch.count > first:
                batches.append(batch)
                size += len(batch.body)
            if len(batches) == MAX_LOG_BATCHES or size >= MAX_LOG_BYTES:
                break
    return tuple(batches)


# -- history --

# One statement, so that it sees a single snapshot. UNION drops duplicate rows, so that even a cycle
# of parents ends. The messages of an ended run are in its session. A run in progress has none
# there; its header has the client's.
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
# A run of the Sessions API continues its session, which may have begun as a fork. Asked of the
# oldest run of a chain; one in progress has no messages of its own there yet.
_EARLIER_IN_SESSION = """
    SELECT n, CAST(body AS BLOB) FROM messages JOIN runs USING (principal, session_id)
    WHERE principal = :principal AND runs.run_id = :run_id AND runs.kind = 'sessions' AND n < coalesce(
        (SELECT min(own.n) FROM messages AS own WHERE own.principal = :principal AND own.run_id = :run_id), n + 1
    )
    ORDER BY n
"""

_ChainRow = tuple[
    str, str, Any, Any, Any
]  # run id, parent, header of a live run, message number, message body


def load_history(connection: SqlConnection, principal: str, run_id: str) -> tuple[Message, ...]:
    """Return the messages of a run and of every run it continues, oldest first."""
    rows: defaultdict[str, list[_ChainRow]] = defaultdict(list)
    for row in connection.execute(_CHAIN, {"principal": principal, "run_id": run_id}):
        rows[row[0]].append(row)
    # From child to parent, each run once.
    chain: dict[str, None] = {}  # an ordered set
    while run_id in rows and run_id not in chain:
        chain[run_id] = None
        run_id = rows[run_id][0][1]
    if not chain:
        return ()
    oldest = next(reversed(chain))
    parameters = {"principal": principal, "run_id": oldest}
    earlier = connection.execute(_EARLIER_IN_SESSION, parameters).fetchall()
    return (
        *(decode_message(body, n, f"the session of run {oldest!r}") for n, body in earlier),
        *(
            message
            for run in reversed(chain)
            for row in rows[run]
            for message in _decode_messages(row)
        ),
    )


def _decode_messages(row: _ChainRow) -> tuple[Message, ...]:
    run_id, _, header, n, body = row
    if header is not None:
        return decode_header(header, run_id).messages
    return () if body is None else (decode_message(body, n, f"run {run_id!r}"),)


# -- idempotency keys --

# An update that changes nothing makes RETURNING yield the existing row.
_CLAIM_KEY = """
    INSERT INTO claims (principal, route, key, fingerprint, run_id, made_at) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (principal, route, key) DO UPDATE SET key = excluded.key
    RETURNING principal, route, key, fingerprint, run_id, made_at
"""


def claim_key(connection: SqlConnection, record: IdempotencyRecord) -> IdempotencyRecord:
    """Store a record, or return the one already held."""
    [row] = connection.execute(_CLAIM_KEY, astuple(record)).fetchall()
    return IdempotencyRecord(*row)


def release_key(connection: SqlConnection, record: IdempotencyRecord) -> None:
    """Delete a record, if it is held by the same run."""
    connection.execute(
        "DELETE FROM claims WHERE principal = ? AND route = ? AND key = ? AND run_id = ?",
        (record.principal, record.route, record.key, record.run_id),
    )
