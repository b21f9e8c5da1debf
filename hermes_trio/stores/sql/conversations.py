"""Queries on conversations and their items. Each function is one job, or a part of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from hermes_trio.core.records import Conversation, ItemPage, NoConversation
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.codec import MAX_INT, decode_json, encode_item, encode_json
from hermes_trio.stores.retention import ITEM_BYTES
from hermes_trio.stores.sql.database import SqlConnection

ConversationKey = tuple[str, str]  # principal, conversation id


@frozen
class ItemQuery:
    """Which items to list."""

    after: str = ""
    limit: int = 0  # 0 = all
    newest_first: bool = False


# For an unknown item the subquery is NULL, and nothing compares greater than NULL.
_OLDEST_FIRST = """
    SELECT n, CAST(body AS BLOB) FROM conversation_items
    WHERE principal = :principal AND conversation_id = :conversation_id AND (:after = '' OR n > (
        SELECT n FROM conversation_items
        WHERE principal = :principal AND conversation_id = :conversation_id AND item_id = :after
    ))
    ORDER BY n LIMIT :limit
"""
_NEWEST_FIRST = _OLDEST_FIRST.replace("n > (", "n < (").replace("ORDER BY n", "ORDER BY n DESC")
_INSERT_ITEM = """
    INSERT INTO conversation_items (principal, conversation_id, n, item_id, body) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (principal, conversation_id, item_id) DO NOTHING
"""
_GROW = "UPDATE conversations SET size = size + ? WHERE principal = ? AND conversation_id = ?"
_FIND_ITEMS = """
    SELECT item_id, conversation_id, n, CAST(body AS BLOB) FROM conversation_items
    WHERE principal = ? AND item_id IN (SELECT value FROM json_each(?))
"""


def save(connection: SqlConnection, conversation: Conversation) -> None:
    """Create a conversation, or replace the metadata of an existing one."""
    connection.execute(
        "INSERT INTO conversations (principal, conversation_id, created_at, metadata) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (principal, conversation_id) DO UPDATE SET metadata = excluded.metadata",
        (
            conversation.principal,
            conversation.conversation_id,
            conversation.created_at,
            encode_json(conversation.metadata),
        ),
    )


def find(
    connection: SqlConnection, principal: str, conversation_id: str
) -> Conversation | NoConversation:
    """Return a conversation without its items."""
    row = connection.execute(
        "SELECT created_at, CAST(metadata AS BLOB) FROM conversations WHERE principal = ? AND conversation_id = ?",
        (principal, conversation_id),
    ).fetchone()
    if row is None:
        return NoConversation()
    metadata = decode_json(
        row[1], dict[str, str], f"the metadata of conversation {conversation_id!r}"
    )
    return Conversation(principal, conversation_id, row[0], metadata)


def delete(connection: SqlConnection, key: ConversationKey) -> bool:
    """Delete a conversation and its items; return False if there is none."""
    connection.execute(
        "DELETE FROM conversation_items WHERE principal = ? AND conversation_id = ?", key
    )
    query = "DELETE FROM conversations WHERE principal = ? AND conversation_id = ?"
    return connection.execute(query, key).rowcount == 1


def add_items(
    connection: SqlConnection, key: ConversationKey, items: Sequence[Mapping[str, Any]]
) -> None:
    """Append items to an existing conversation, except those already in it."""
    encoded = [encode_item(item) for item in items]
    query = "SELECT 1 FROM conversations WHERE principal = ? AND conversation_id = ?"
    if connection.execute(query, key).fetchone() is None:
        raise StoreError(f"there is no conversation {key[1]!r}")
    _append(connection, key, encoded)


def create_with_items(
    connection: SqlConnection,
    key: ConversationKey,
    now: float,
    encoded: Sequence[tuple[str, str]],
) -> None:
    """Create a conversation if it does not exist, and append encoded items, except those already in it."""
    connection.execute(
        "INSERT INTO conversations (principal, conversation_id, created_at, metadata) VALUES (?, ?, ?, '{}')"
        " ON CONFLICT DO NOTHING",
        (*key, now),
    )
    _append(connection, key, encoded)


def _append(
    connection: SqlConnection, key: ConversationKey, encoded: Sequence[tuple[str, str]]
) -> None:
    query = "SELECT coalesce(max(n) + 1, 0) FROM conversation_items WHERE principal = ? AND conversation_id = ?"
    [start] = connection.execute(query, key).fetchone()
    added = 0
    for n, (item_id, body) in enumerate(encoded, start):
        if connection.execute(_INSERT_ITEM, (*key, n, item_id, body)).rowcount == 1:
            added += len(body) + ITEM_BYTES
    connection.execute(_GROW, (added, *key))


def list_items(connection: SqlConnection, key: ConversationKey, query: ItemQuery) -> ItemPage:
    """Return one page of items."""
    parameters = {
        "principal": key[0],
        "conversation_id": key[1],
        "after": query.after,
        "limit": query.limit + 1
        if query.limit
        else MAX_INT,  # one more shows whether there is another page
    }
    statement = _NEWEST_FIRST if query.newest_first else _OLDEST_FIRST
    rows = connection.execute(statement, parameters).fetchall()
    page = rows[: query.limit] if query.limit else rows
    items = tuple(
        decode_json(body, dict[str, Any], f"item {n} of conversation {key[1]!r}")
        for n, body in page
    )
    return ItemPage(items, len(rows) > len(page))


def find_items(
    connection: SqlConnection, principal: str, item_ids: str
) -> dict[str, Mapping[str, Any]]:
    """Return the items of any conversation that have one of these ids, given as a JSON array."""
    rows = connection.execute(_FIND_ITEMS, (principal, item_ids)).fetchall()
    return {
        item_id: decode_json(body, dict[str, Any], f"item {n} of conversation {name!r}")
        for item_id, name, n, body in rows
    }


def delete_item(connection: SqlConnection, key: ConversationKey, item_id: str) -> bool:
    """Delete one item; return False if there is none."""
    query = (
        "DELETE FROM conversation_items WHERE principal = ? AND conversation_id = ? AND item_id = ?"
        " RETURNING length(body)"
    )
    deleted = connection.execute(query, (*key, item_id)).fetchone()
    if deleted is None:
        return False
    connection.execute(_GROW, (-deleted[0] - ITEM_BYTES, *key))
    return True
