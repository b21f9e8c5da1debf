"""Queries on sessions: their fields, their transcripts, and the approvals granted in them.

Each function is one job, or a part of one. Text columns are read as blobs: the driver would fail on
invalid text and could not say in which row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import structlog
from attrs import frozen

from hermes_trio.core.approvals import Grant
from hermes_trio.core.log_codec import as_dict, field_names
from hermes_trio.core.messages import Message
from hermes_trio.core.sessions import (
    BRANCHED,
    COMPRESSED,
    NO_COUNTS,
    Counters,
    MessagePage,
    MessageSearch,
    NoSession,
    SearchPage,
    Session,
    SessionBusy,
    SessionChange,
    SessionDeleted,
    SessionExists,
    SessionFork,
    SessionPage,
    SessionQuery,
    StoredMessage,
    TitleTaken,
    base_title,
    build_preview,
    matches,
    next_title,
)
from hermes_trio.stores.base import CorruptRecord
from hermes_trio.stores.codec import (
    clamp_int,
    decode_json,
    decode_message,
    encode_json,
    escape_surrogates,
)
from hermes_trio.stores.retention import MESSAGE_BYTES, SESSION_BYTES
from hermes_trio.stores.sql import retention
from hermes_trio.stores.sql.database import SqlConnection

log = structlog.get_logger(__name__)

SessionKey = tuple[str, str]  # principal, session id

_COUNTERS = field_names(Counters)
_COLUMNS = (
    "principal, session_id, kind, created_at, updated_at, model, title, CAST(system_prompt AS BLOB),"
    f" CAST(preview AS BLOB), ended_at, end_reason, parent, pinned, forked_messages, {', '.join(_COUNTERS)}"
)
_BY_KEY = "principal = ? AND session_id = ?"

# Of a chain of compressed sessions only the last is listed, unless all are wanted.
_LIST = f"""
    SELECT {_COLUMNS} FROM sessions WHERE principal = :principal AND (:kind = '' OR kind = :kind)
        AND (:parent = '' OR parent = :parent) AND (:all OR end_reason <> '{COMPRESSED}' OR NOT EXISTS (
            SELECT 1 FROM sessions AS later
            WHERE later.principal = sessions.principal AND later.parent = sessions.session_id AND later.parent <> ''
        ))
    ORDER BY updated_at DESC, session_id DESC LIMIT :limit OFFSET :offset
"""  # noqa: S608 - only constants of this package
# Fields that are still empty are filled in by the first run that knows them.
UPSERT = """
    INSERT INTO sessions (principal, session_id, kind, created_at, updated_at, used_at, size, model, preview, parent,
        {names})
    VALUES (:principal, :session_id, :kind, :created_at, :used_at, :used_at, :size + {row}, :model, :preview, :parent,
        {values})
    ON CONFLICT (principal, session_id) DO UPDATE SET
        updated_at = CASE WHEN sessions.updated_at < excluded.updated_at
            THEN excluded.updated_at ELSE sessions.updated_at END,
        used_at = CASE WHEN sessions.used_at < excluded.used_at THEN excluded.used_at ELSE sessions.used_at END,
        size = sessions.size + excluded.size - {row},
        model = CASE sessions.model WHEN '' THEN excluded.model ELSE sessions.model END,
        preview = CASE sessions.preview WHEN '' THEN excluded.preview ELSE sessions.preview END,
        {sums}
""".format(  # noqa: S608 - only constants of this package
    row=SESSION_BYTES,
    names=", ".join(_COUNTERS),
    values=", ".join(f":{name}" for name in _COUNTERS),
    sums=", ".join(f"{name} = sessions.{name} + excluded.{name}" for name in _COUNTERS),
)
APPEND_MESSAGE = """
    INSERT INTO messages (principal, session_id, n, run_id, at, body) VALUES (:principal, :session_id,
        (SELECT coalesce(max(n) + 1, 0) FROM messages WHERE principal = :principal AND session_id = :session_id),
        :run_id, :at, :body)
"""
_COPY_MESSAGES = """
    INSERT INTO messages (principal, session_id, n, run_id, origin, at, body)
    SELECT principal, :child, n, '', CASE run_id WHEN '' THEN origin ELSE run_id END, at, body
    FROM messages WHERE principal = :principal AND session_id = :source AND (:before = 0 OR n < :before - 1)
"""
_COUNT_COPIED = f"""
    UPDATE sessions SET message_count = ?, tool_call_count = ?, forked_messages = ?, preview = ?, size = size + ?
    WHERE {_BY_KEY}
"""  # noqa: S608
_PIN = f"UPDATE sessions SET pinned = ? WHERE {_BY_KEY}"  # noqa: S608
_LIST_MESSAGES = """
    SELECT n, CASE run_id WHEN '' THEN origin ELSE run_id END, at, CAST(body AS BLOB) FROM messages
    WHERE principal = ? AND session_id = ? AND n >= ? ORDER BY n LIMIT ?
"""
# A run that was given up is hidden with its damaged header, for examination by hand; that goes with
# the session.
_EMPTY_STUBS = """
    UPDATE runs SET header = '', items = '', outcome = '' WHERE principal = ? AND session_id = ? AND hidden = 1
"""
_ENDED_RUNS = """
    SELECT run_id FROM runs WHERE principal = ? AND session_id = ? AND hidden = 0 AND status <> 'in_progress'
"""


# -- sessions --


def create(connection: SqlConnection, session: Session) -> Session | SessionExists | TitleTaken:
    """Create a session, unless its id or title is taken."""
    key = (session.principal, session.session_id)
    if not isinstance(find(connection, key), NoSession):
        return SessionExists()
    if _is_title_taken(connection, key, session.title):
        return TitleTaken()
    prompt = encode_json(session.system_prompt)
    connection.execute(
        "INSERT INTO sessions (principal, session_id, kind, created_at, updated_at, used_at, size, model, title,"
        " system_prompt, preview, parent, forked_messages) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            session.principal,
            session.session_id,
            session.kind,
            session.created_at,
            session.updated_at,
            session.updated_at,
            SESSION_BYTES + len(prompt),
            escape_surrogates(session.model),
            session.title,
            prompt,
            escape_surrogates(session.preview),
            session.parent,
            session.forked_messages,
        ),
    )
    return session


def _is_title_taken(connection: SqlConnection, key: SessionKey, title: str) -> bool:
    query = "SELECT 1 FROM sessions WHERE principal = ? AND title = ? AND title <> '' AND session_id <> ?"
    return connection.execute(query, (key[0], title, key[1])).fetchone() is not None


def find(connection: SqlConnection, key: SessionKey) -> Session | NoSession:
    """Return a session without its messages."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM sessions WHERE {_BY_KEY}", key).fetchone()  # noqa: S608
    return NoSession() if row is None else _decode(row)


def _decode(row: tuple[Any, ...]) -> Session:
    principal, session_id, kind, created_at, updated_at, model, title, prompt, preview, *more = row
    ended_at, end_reason, parent, pinned, forked_messages, *counts = more
    place = f"the system prompt of session {session_id!r}"
    return Session(
        principal=principal,
        session_id=session_id,
        kind=kind,
        created_at=created_at,
        updated_at=updated_at,
        model=model,
        title=title,
        system_prompt=decode_json(prompt, str, place) if prompt else "",
        preview=preview if isinstance(preview, str) else preview.decode("utf-8", "replace"),
        ended_at=ended_at,
        end_reason=end_reason,
        parent=parent,
        counters=Counters(**dict(zip(_COUNTERS, counts, strict=True))),
        is_pinned=bool(pinned),
        forked_messages=forked_messages,
    )


def list_page(connection: SqlConnection, principal: str, query: SessionQuery) -> SessionPage:
    """Return one page of sessions, most recently active first."""
    limit = clamp_int(query.limit)
    parameters = {
        "principal": principal,
        "kind": query.kind,
        "parent": query.parent,
        "all": query.include_children,
        "limit": limit + 1,  # one more shows whether there is another page
        "offset": clamp_int(query.offset),
    }
    rows = connection.execute(_LIST, parameters).fetchall()
    sessions: list[Session] = []
    for row in rows[:limit]:
        try:
            sessions.append(_decode(row))
        except CorruptRecord as error:
            log.error("a session that cannot be read is left out", error=str(error))
    return SessionPage(tuple(sessions), len(rows) > limit)


def update(
    connection: SqlConnection, key: SessionKey, change: SessionChange, now: float
) -> Session | NoSession | TitleTaken:
    """Apply a change as a whole or not at all."""
    if isinstance(find(connection, key), NoSession):
        return NoSession()
    if change.sets_title:
        if _is_title_taken(connection, key, change.title):
            return TitleTaken()
        connection.execute(f"UPDATE sessions SET title = ? WHERE {_BY_KEY}", (change.title, *key))  # noqa: S608
    if change.pins is not None:
        connection.execute(_PIN, (int(change.pins), *key))
    if change.end_reason:
        end(connection, key, change.end_reason, now)
    return find(connection, key)


def end(connection: SqlConnection, key: SessionKey, reason: str, now: float) -> None:
    """End a session, unless it has already ended."""
    connection.execute(
        f"UPDATE sessions SET ended_at = ?, end_reason = ? WHERE {_BY_KEY} AND end_reason = ''",  # noqa: S608
        (now, reason, *key),
    )


def fork(
    connection: SqlConnection, request: SessionFork
) -> Session | NoSession | SessionExists | TitleTaken:
    """End a session, and create another with a copy of its transcript."""
    source_key, child_key = (
        (request.principal, request.source_id),
        (request.principal, request.child_id),
    )
    source = find(connection, source_key)
    if isinstance(source, NoSession):
        return source
    created = create(
        connection,
        Session(
            principal=request.principal,
            session_id=request.child_id,
            kind=source.kind,
            created_at=request.now,
            updated_at=request.now,
            model=request.model or source.model,
            title=request.title or next_title(source.title, _similar_titles(connection, source)),
            system_prompt=source.system_prompt,
            parent=source.session_id,
        ),
    )
    if not isinstance(created, Session):
        return created
    parameters = {
        "principal": request.principal,
        "source": request.source_id,
        "child": request.child_id,
        "before": clamp_int(request.before),
    }
    copied = connection.execute(_COPY_MESSAGES, parameters).rowcount
    messages = load_messages(connection, *child_key)
    # Token counts start at zero: the copied messages were paid for in the source.
    counts = (
        copied,
        sum(len(message.tool_calls) for message in messages),
        copied if request.before else -1,
        escape_surrogates(build_preview(messages)),
        _messages_size(connection, child_key),
    )
    connection.execute(_COUNT_COPIED, (*counts, *child_key))
    end(connection, source_key, BRANCHED, request.now)
    return find(connection, child_key)


def _messages_size(connection: SqlConnection, key: SessionKey) -> int:
    query = f"SELECT count(*), coalesce(sum(length(body)), 0) FROM messages WHERE {_BY_KEY}"  # noqa: S608
    count, size = connection.execute(query, key).fetchone()
    return int(count) * MESSAGE_BYTES + int(size)


def _similar_titles(connection: SqlConnection, source: Session) -> frozenset[str]:
    """Return the titles that the next numbered one could collide with."""
    prefix = base_title(source.title)[:80]
    query = "SELECT title FROM sessions WHERE principal = ? AND substr(title, 1, CAST(? AS INTEGER)) = ? AND title <> ''"
    rows = connection.execute(query, (source.principal, len(prefix), prefix))
    return frozenset(title for (title,) in rows)


def delete(connection: SqlConnection, key: SessionKey) -> SessionDeleted | SessionBusy | NoSession:
    """Delete a session, its transcript, its approvals, and the runs that ended in it."""
    if isinstance(find(connection, key), NoSession):
        return NoSession()
    query = "SELECT 1 FROM runs WHERE principal = ? AND session_id = ? AND status = 'in_progress' LIMIT 1"
    if connection.execute(query, key).fetchone() is not None:
        return SessionBusy()
    connection.execute(_EMPTY_STUBS, key)
    for (run_id,) in connection.execute(_ENDED_RUNS, key).fetchall():
        retention.delete_run(connection, key[0], run_id)
    delete_rows(connection, key)
    return SessionDeleted()


def delete_rows(connection: SqlConnection, key: SessionKey) -> int:
    """Delete a session without runs, its transcript and its approvals; return the size that it had."""
    query = f"SELECT size FROM sessions WHERE {_BY_KEY}"  # noqa: S608
    found = connection.execute(query, key).fetchone()
    connection.execute(f"DELETE FROM messages WHERE {_BY_KEY}", key)  # noqa: S608
    connection.execute(f"DELETE FROM sessions WHERE {_BY_KEY}", key)  # noqa: S608
    connection.execute(f"DELETE FROM approvals WHERE {_BY_KEY}", key)  # noqa: S608
    return int(found[0]) if found else 0


# -- transcripts --


@frozen
class SessionUse:
    """The use of a session by a run; the session is created from it if it does not exist."""

    principal: str
    session_id: str
    kind: str
    created_at: float
    used_at: float
    model: str
    preview: str
    parent: str = ""  # the session that it continues
    size: int = 0  # of the messages that the run adds


def record_use(connection: SqlConnection, use: SessionUse, added: Counters = NO_COUNTS) -> None:
    """Create a session if it does not exist, mark it as used, and add to its counters and its size."""
    connection.execute(UPSERT, as_dict(use) | as_dict(added))


@frozen
class SessionTurn:
    """What a run adds to a session when it ends."""

    use: SessionUse
    run_id: str
    messages: Sequence[str]  # encoded
    added: Counters


def append_turns(connection: SqlConnection, turns: Sequence[SessionTurn]) -> None:
    """Append the messages of runs to their sessions, creating sessions if necessary."""
    connection.executemany(UPSERT, [as_dict(turn.use) | as_dict(turn.added) for turn in turns])
    connection.executemany(
        APPEND_MESSAGE,
        [
            {
                "principal": turn.use.principal,
                "session_id": turn.use.session_id,
                "run_id": turn.run_id,
                "at": turn.use.used_at,
                "body": body,
            }
            for turn in turns
            for body in turn.messages
        ],
    )


def load_messages(
    connection: SqlConnection, principal: str, session_id: str
) -> tuple[Message, ...]:
    """Return the whole transcript of a session, oldest message first."""
    query = "SELECT n, CAST(body AS BLOB) FROM messages WHERE principal = ? AND session_id = ? ORDER BY n"
    rows = connection.execute(query, (principal, session_id)).fetchall()
    owner = f"session {session_id!r}"
    return tuple(decode_message(body, n, owner) for n, body in rows)


def list_messages(
    connection: SqlConnection, key: SessionKey, after: int, limit: int
) -> MessagePage:
    """Return one page of messages. Their numbers count from 1, those of the rows from 0."""
    limit = clamp_int(limit)
    rows = connection.execute(_LIST_MESSAGES, (*key, clamp_int(after), limit + 1)).fetchall()
    owner = f"session {key[1]!r}"
    messages = (
        StoredMessage(n + 1, decode_message(body, n, owner), at, run_id)
        for n, run_id, at, body in rows[:limit]
    )
    return MessagePage(tuple(messages), len(rows) > limit)


# -- approvals --


def is_granted(
    connection: SqlConnection,
    principal: str,
    session_id: str,
    patterns: tuple[str, ...],
    end_user: str,
) -> bool:
    """Return whether every pattern is granted to the end user, for this session or for all."""
    query = (
        "SELECT 1 FROM approvals WHERE principal = ? AND end_user = ? AND session_id IN ('', ?)"
        " AND pattern = ? LIMIT 1"
    )
    key = (principal, end_user, session_id)
    return bool(patterns) and all(
        connection.execute(query, (*key, escape_surrogates(pattern))).fetchone()
        for pattern in patterns
    )


def grant(connection: SqlConnection, grants: Sequence[Grant]) -> None:
    """Store grants; existing ones are left unchanged."""
    connection.executemany(
        "INSERT INTO approvals (principal, end_user, session_id, pattern, made_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (
            (
                each.principal,
                each.end_user,
                each.session_id,
                escape_surrogates(each.pattern),
                each.made_at,
            )
            for each in grants
        ),
    )


def list_grants(connection: SqlConnection, principal: str) -> tuple[Grant, ...]:
    """Return everything a principal has granted, oldest first."""
    query = (
        "SELECT principal, session_id, pattern, made_at, end_user FROM approvals WHERE principal = ?"
        " ORDER BY made_at, session_id, pattern, end_user"
    )
    return tuple(Grant(*row) for row in connection.execute(query, (principal,)))


def revoke(
    connection: SqlConnection,
    principal: str,
    session_id: str,
    pattern: str,
    end_user: str | None,
) -> bool:
    """Delete a grant, for every end user if none is given; return False if there is none."""
    query = (
        "DELETE FROM approvals WHERE principal = :principal AND session_id = :session_id"
        " AND pattern = :pattern AND (:all OR end_user = :end_user)"
    )
    parameters = {
        "principal": principal,
        "session_id": session_id,
        "pattern": escape_surrogates(pattern),
        "all": end_user is None,
        "end_user": end_user or "",
    }
    return connection.execute(query, parameters).rowcount > 0


# -- search --

MATCHES_PER_SESSION = 3  # the latest
_PLAIN = re.compile(r"[a-z0-9]+")

_SEARCHED = f"SELECT {_COLUMNS} FROM sessions WHERE principal = ? ORDER BY updated_at DESC, session_id DESC LIMIT ? OFFSET ?"  # noqa: S608
# Messages are stored as JSON in ASCII, so only plain words stand in it as they are.
_CANDIDATES = """
    SELECT n, CASE run_id WHEN '' THEN origin ELSE run_id END, at, CAST(body AS BLOB) FROM messages
    WHERE principal = :principal AND session_id = :session_id AND lower(body) LIKE :a AND lower(body) LIKE :b
        AND lower(body) LIKE :c
    ORDER BY n DESC
"""


def search(connection: SqlConnection, principal: str, query: MessageSearch) -> SearchPage:
    """Search the transcripts of some sessions, latest activity first."""
    limit = clamp_int(query.sessions)
    rows = connection.execute(_SEARCHED, (principal, limit + 1, clamp_int(query.offset))).fetchall()
    plain = [f"%{part}%" for word in query.words for part in _PLAIN.findall(word)]
    patterns = dict(zip("abc", [*plain, "%", "%", "%"], strict=False))
    found: list[tuple[Session, tuple[StoredMessage, ...]]] = []
    searched = matched = 0
    for row in rows[:limit]:
        if matched >= query.limit:
            break
        searched += 1
        key = {"principal": principal, "session_id": row[1]}
        candidates = connection.execute(_CANDIDATES, {**key, **patterns}).fetchall()
        messages = _matching(candidates, query.words, f"session {row[1]!r}")
        if hits := tuple(islice(messages, MATCHES_PER_SESSION)):
            found.append((_decode(row), hits))
            matched += len(hits)
    return SearchPage(tuple(found), searched, len(rows) > searched)


def _matching(
    rows: Iterable[tuple[Any, ...]], words: Sequence[str], owner: str
) -> Iterator[StoredMessage]:
    for n, run_id, at, body in rows:
        try:
            message = decode_message(body, n, owner)
        except CorruptRecord as error:
            log.error("a message that cannot be read is left out of a search", error=str(error))
            continue
        if matches(message, words):
            yield StoredMessage(n + 1, message, at, run_id)
