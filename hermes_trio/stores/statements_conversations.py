"""Conversations in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from hermes_trio.core.records import Conversation, ItemPage, NoConversation
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.codec import decode, encode, item_body

Place = tuple[str, str]  # the principal and the id of a conversation


@frozen
class Page:
    """Which items are wanted."""

    after: str = ""
    limit: int = 0  # 0 = all
    newest_first: bool = False


# The place of an item that is not there is NULL, and nothing comes after NULL. A negative limit is none.
_OLDEST_FIRST = """
    SELECT n, CAST(body AS BLOB) FROM conversation_items
    WHERE principal = :principal AND conversation_id = :conversation_id AND (:after = '' OR n > (
        SELECT n FROM conversation_items
        WHERE principal = :principal AND conversation_id = :conversation_id AND item_id = :after
    ))
    ORDER BY n LIMIT :limit
"""
_NEWEST_FIRST = _OLDEST_FIRST.replace("n > (", "n < (").replace("ORDER BY n", "ORDER BY n DESC")


def save(connection: sqlite3.Connection, conversation: Conversation) -> None:
    """Make a conversation, or change its metadata."""
    connection.execute(
        "INSERT INTO conversations (principal, conversation_id, created_at, metadata) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET metadata = excluded.metadata",
        (
            conversation.principal,
            conversation.conversation_id,
            conversation.created_at,
            encode(conversation.metadata),
        ),
    )


def ensure(connection: sqlite3.Connection, place: Place, now: float) -> None:
    """Make a conversation if it is not there."""
    connection.execute(
        "INSERT INTO conversations (principal, conversation_id, created_at, metadata) VALUES (?, ?, ?, '{}')"
        " ON CONFLICT DO NOTHING",
        (*place, now),
    )


def find(
    connection: sqlite3.Connection, principal: str, conversation_id: str
) -> Conversation | NoConversation:
    """A conversation without its items."""
    row = connection.execute(
        "SELECT created_at, CAST(metadata AS BLOB) FROM conversations WHERE principal = ? AND conversation_id = ?",
        (principal, conversation_id),
    ).fetchone()
    if row is None:
        return NoConversation()
    metadata = decode(row[1], dict[str, str], f"the metadata of conversation {conversation_id!r}")
    return Conversation(principal, conversation_id, row[0], metadata)


def delete(connection: sqlite3.Connection, place: Place) -> bool:
    """Remove a conversation and its items; False if there is none."""
    connection.execute("DELETE FROM conversation_items WHERE principal = ? AND conversation_id = ?", place)
    query = "DELETE FROM conversations WHERE principal = ? AND conversation_id = ?"
    return connection.execute(query, place).rowcount == 1


def add(connection: sqlite3.Connection, place: Place, items: Sequence[Mapping[str, Any]]) -> None:
    """Append items to a conversation that is there."""
    written = [item_body(item) for item in items]
    query = "SELECT 1 FROM conversations WHERE principal = ? AND conversation_id = ?"
    if connection.execute(query, place).fetchone() is None:
        raise StoreError(f"there is no conversation {place[1]!r}")
    append(connection, place, written)


def append(connection: sqlite3.Connection, place: Place, written: Sequence[tuple[str, str]]) -> None:
    """Append items, except those that are there already."""
    query = (
        "SELECT coalesce(max(n) + 1, 0) FROM conversation_items WHERE principal = ? AND conversation_id = ?"
    )
    [start] = connection.execute(query, place).fetchone()
    connection.executemany(
        "INSERT INTO conversation_items (principal, conversation_id, n, item_id, body) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (principal, conversation_id, item_id) DO NOTHING",
        ((*place, n, *item) for n, item in enumerate(written, start)),
    )


def items(connection: sqlite3.Connection, place: Place, page: Page) -> ItemPage:
    """Some items of a conversation."""
    asked = {
        "principal": place[0],
        "conversation_id": place[1],
        "after": page.after,
        "limit": page.limit + 1 if page.limit else -1,  # one more tells whether there are more
    }
    rows = connection.execute(_NEWEST_FIRST if page.newest_first else _OLDEST_FIRST, asked).fetchall()
    wanted = rows[: page.limit] if page.limit else rows
    found = tuple(
        decode(body, dict[str, Any], f"item {n} of conversation {place[1]!r}") for n, body in wanted
    )
    return ItemPage(found, len(rows) > len(wanted))


def delete_item(connection: sqlite3.Connection, place: Place, item_id: str) -> bool:
    """Remove one item; False if there is none."""
    query = "DELETE FROM conversation_items WHERE principal = ? AND conversation_id = ? AND item_id = ?"
    return connection.execute(query, (*place, item_id)).rowcount == 1
