"""Sessions in SQLite as the Sessions API shows them: made, found, listed, changed, forked, deleted."""

from __future__ import annotations

import sqlite3
from typing import Any

from attrs import fields, frozen

from hermes_trio.core.sessions import (
    BRANCHED,
    COMPRESSED,
    Counters,
    MessagePage,
    NoSession,
    Session,
    SessionBusy,
    SessionChange,
    SessionDeleted,
    SessionExists,
    SessionPage,
    SessionQuery,
    StoredMessage,
    TitleTaken,
    base_title,
    next_title,
)
from hermes_trio.stores import statements_forget as forgetting
from hermes_trio.stores.codec import clamped, decode, encode, legible, message

Place = tuple[str, str]  # the principal and the id of a session

_COUNTERS = tuple(field.name for field in fields(Counters))
# Texts that people wrote come as blobs: what an older program or another one left there may be broken.
_COLUMNS = (
    "principal, session_id, kind, created_at, updated_at, model, title, CAST(system_prompt AS BLOB),"
    f" CAST(preview AS BLOB), ended_at, end_reason, parent, {', '.join(_COUNTERS)}"
)
_ONE = "principal = ? AND session_id = ?"

# What goes on elsewhere is shown there: of a chain of compressed sessions the last.
_LIST = f"""
    SELECT {_COLUMNS} FROM sessions WHERE principal = :principal AND (:kind = '' OR kind = :kind)
        AND (:all OR end_reason <> '{COMPRESSED}' OR NOT EXISTS (
            SELECT 1 FROM sessions AS later
            WHERE later.principal = sessions.principal AND later.parent = sessions.session_id AND later.parent <> ''
        ))
    ORDER BY updated_at DESC, session_id DESC LIMIT :limit OFFSET :offset
"""  # noqa: S608 - nothing in it comes from outside
_COPY = """
    INSERT INTO messages (principal, session_id, n, run_id, origin, at, body)
    SELECT principal, :child, n, '', CASE run_id WHEN '' THEN origin ELSE run_id END, at, body
    FROM messages WHERE principal = :principal AND session_id = :source
"""
_MESSAGES = """
    SELECT n, CASE run_id WHEN '' THEN origin ELSE run_id END, at, CAST(body AS BLOB) FROM messages
    WHERE principal = ? AND session_id = ? AND n >= ? ORDER BY n LIMIT ?
"""
# A run that was given up is hidden with its damaged header, for people to look at; here that goes too.
_EMPTY_STUBS = """
    UPDATE runs SET header = x'', items = x'', outcome = '' WHERE principal = ? AND session_id = ? AND hidden = 1
"""


@frozen
class Fork:
    """A branch to be made."""

    principal: str
    source: str
    child: str
    title: str  # "" for the next numbered one
    now: float


def create(connection: sqlite3.Connection, session: Session) -> Session | SessionExists | TitleTaken:
    """Make a session, unless it is there or its title is taken."""
    place = (session.principal, session.session_id)
    if not isinstance(find(connection, place), NoSession):
        return SessionExists()
    if _is_taken(connection, place, session.title):
        return TitleTaken()
    _insert(connection, session)
    return session


def _insert(connection: sqlite3.Connection, session: Session) -> None:
    connection.execute(
        "INSERT INTO sessions (principal, session_id, kind, created_at, updated_at, model, title, system_prompt,"
        " preview, parent) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            session.principal,
            session.session_id,
            session.kind,
            session.created_at,
            session.updated_at,
            legible(session.model),
            session.title,
            encode(session.system_prompt),
            legible(session.preview),
            session.parent,
        ),
    )


def _is_taken(connection: sqlite3.Connection, place: Place, title: str) -> bool:
    query = "SELECT 1 FROM sessions WHERE principal = ? AND title = ? AND title <> '' AND session_id <> ?"
    return connection.execute(query, (place[0], title, place[1])).fetchone() is not None


def find(connection: sqlite3.Connection, place: Place) -> Session | NoSession:
    """A session without its messages."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM sessions WHERE {_ONE}", place).fetchone()  # noqa: S608
    return NoSession() if row is None else _session(row)


def _session(row: tuple[Any, ...]) -> Session:
    principal, session_id, kind, created_at, updated_at, model, title, prompt, preview, *more = row
    ended_at, end_reason, parent, *counted = more
    return Session(
        principal=principal,
        session_id=session_id,
        kind=kind,
        created_at=created_at,
        updated_at=updated_at,
        model=model,
        title=title,
        system_prompt=decode(prompt, str, f"the system prompt of session {session_id!r}") if prompt else "",
        preview=preview.decode("utf-8", "replace"),
        ended_at=ended_at,
        end_reason=end_reason,
        parent=parent,
        counters=Counters(**dict(zip(_COUNTERS, counted, strict=True))),
    )


def page(connection: sqlite3.Connection, principal: str, query: SessionQuery) -> SessionPage:
    """Some sessions, the one with the latest activity first."""
    limit = clamped(query.limit)
    asked = {
        "principal": principal,
        "kind": query.kind,
        "all": query.include_children,
        "limit": limit + 1,  # one more tells whether there are more
        "offset": clamped(query.offset),
    }
    rows = connection.execute(_LIST, asked).fetchall()
    return SessionPage(tuple(map(_session, rows[:limit])), len(rows) > limit)


def update(
    connection: sqlite3.Connection, place: Place, change: SessionChange, now: float
) -> Session | NoSession | TitleTaken:
    """Change a session, all of it or nothing."""
    if isinstance(find(connection, place), NoSession):
        return NoSession()
    if change.sets_title:
        if _is_taken(connection, place, change.title):
            return TitleTaken()
        connection.execute(f"UPDATE sessions SET title = ? WHERE {_ONE}", (change.title, *place))  # noqa: S608
    if change.end_reason:
        end(connection, place, change.end_reason, now)
    return find(connection, place)


def end(connection: sqlite3.Connection, place: Place, reason: str, now: float) -> None:
    """End a session, unless it has ended."""
    connection.execute(
        f"UPDATE sessions SET ended_at = ?, end_reason = ? WHERE {_ONE} AND end_reason = ''",  # noqa: S608
        (now, reason, *place),
    )


def fork(connection: sqlite3.Connection, wanted: Fork) -> Session | NoSession | SessionExists | TitleTaken:
    """End a session and begin another one with all that was said in it."""
    source = find(connection, (wanted.principal, wanted.source))
    if isinstance(source, NoSession):
        return source
    title = wanted.title or next_title(source.title, _titles_like(connection, source))
    child = _child(source, wanted, title)
    made = create(connection, child)
    if not isinstance(made, Session):
        return made
    names = {"principal": wanted.principal, "source": wanted.source, "child": wanted.child}
    copied = connection.execute(_COPY, names).rowcount
    place = (wanted.principal, wanted.child)
    connection.execute(
        f"UPDATE sessions SET message_count = ?, tool_call_count = ? WHERE {_ONE}",  # noqa: S608
        (copied, source.counters.tool_call_count, *place),
    )
    end(connection, (wanted.principal, wanted.source), BRANCHED, wanted.now)
    return find(connection, place)


def _child(source: Session, wanted: Fork, title: str) -> Session:
    """Its tokens count from zero: what was copied was paid for in the source."""
    return Session(
        principal=wanted.principal,
        session_id=wanted.child,
        kind=source.kind,
        created_at=wanted.now,
        updated_at=wanted.now,
        model=source.model,
        title=title,
        system_prompt=source.system_prompt,
        preview=source.preview,
        parent=source.session_id,
    )


def _titles_like(connection: sqlite3.Connection, source: Session) -> frozenset[str]:
    """The titles that a numbered one could meet."""
    beginning = base_title(source.title)[:80]
    query = "SELECT title FROM sessions WHERE principal = ? AND substr(title, 1, ?) = ? AND title <> ''"
    rows = connection.execute(query, (source.principal, len(beginning), beginning))
    return frozenset(title for (title,) in rows)


def delete(connection: sqlite3.Connection, place: Place) -> SessionDeleted | SessionBusy | NoSession:
    """Forget a session: its transcript, and the runs that ended in it with their logs and claims."""
    if isinstance(find(connection, place), NoSession):
        return NoSession()
    query = "SELECT 1 FROM runs WHERE principal = ? AND session_id = ? AND status = 'in_progress' LIMIT 1"
    if connection.execute(query, place).fetchone() is not None:
        return SessionBusy()
    connection.execute(_EMPTY_STUBS, place)
    query = "SELECT run_id FROM runs WHERE principal = ? AND session_id = ? AND hidden = 0"
    for (run_id,) in connection.execute(query, place).fetchall():
        forgetting.delete(connection, place[0], run_id)
    connection.execute(f"DELETE FROM messages WHERE {_ONE}", place)  # noqa: S608
    connection.execute(f"DELETE FROM sessions WHERE {_ONE}", place)  # noqa: S608
    connection.execute(f"DELETE FROM approvals WHERE {_ONE}", place)  # noqa: S608
    return SessionDeleted()


def messages(connection: sqlite3.Connection, place: Place, after: int, limit: int) -> MessagePage:
    """Some messages of a session. Their numbers count from 1, those of the rows from 0."""
    limit = clamped(limit)
    rows = connection.execute(_MESSAGES, (*place, clamped(after), limit + 1)).fetchall()
    owner = f"session {place[1]!r}"
    found = (StoredMessage(n + 1, message(body, n, owner), at, run) for n, run, at, body in rows[:limit])
    return MessagePage(tuple(found), len(rows) > limit)
