"""Conversations: the bodies that make and change them, and how they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from hermes_trio.core.errors import bad_request
from hermes_trio.core.records import Conversation
from hermes_trio.core.shorten import shorten
from hermes_trio.schema.input_items import InputItem, read_items
from hermes_trio.schema.json import convert, parse_object

MAX_ITEMS = 20  # in one call
MAX_PAIRS = 16
MAX_KEY = 64
MAX_VALUE = 512


@frozen
class ConversationBody:
    """``POST /v1/conversations``."""

    items: list[Any] | None = None
    metadata: dict[str, Any] | None = None


@frozen
class ConversationUpdateBody:
    """``POST /v1/conversations/{conversation_id}``."""

    metadata: dict[str, Any] | None


@frozen
class ConversationItemsBody:
    """``POST /v1/conversations/{conversation_id}/items``."""

    items: list[Any]


@frozen
class ConversationRequest:
    """A conversation to be made."""

    items: tuple[InputItem, ...]  # without ids
    metadata: Mapping[str, str]


def parse_conversation(raw: bytes) -> ConversationRequest:
    """Read the body that makes a conversation; no body makes an empty one.

    Raises:
        ApiError: 400, naming the parameter that is wrong.
    """
    body = convert(parse_object(raw or b"{}"), ConversationBody)
    return ConversationRequest(_items(body.items or []), read_metadata(body.metadata))


def parse_conversation_update(raw: bytes) -> Mapping[str, str]:
    """Read the body that gives a conversation other metadata.

    Raises:
        ApiError: 400, naming the parameter that is wrong.
    """
    return read_metadata(convert(parse_object(raw), ConversationUpdateBody).metadata)


def parse_conversation_items(raw: bytes) -> tuple[InputItem, ...]:
    """Read the body that adds items to a conversation.

    Raises:
        ApiError: 400, naming the parameter that is wrong.
    """
    body = convert(parse_object(raw), ConversationItemsBody)
    if not body.items:
        raise bad_request("'items' must be a non-empty array.", "items")
    return _items(body.items)


def read_metadata(value: Mapping[str, Any] | None) -> Mapping[str, str]:
    """The pairs that a client attaches, within the bounds that the API promises."""
    pairs = value or {}
    if len(pairs) > MAX_PAIRS:
        raise bad_request(f"'metadata' must have at most {MAX_PAIRS} pairs.", "metadata")
    for key, text in pairs.items():
        _check_pair(key, text)
    return dict(pairs)


def conversation_object(conversation: Conversation) -> dict[str, Any]:
    """A conversation as the API shows it."""
    return {
        "id": conversation.conversation_id,
        "object": "conversation",
        "created_at": int(conversation.created_at),
        "metadata": dict(conversation.metadata),
    }


def item_list(items: Sequence[InputItem], has_more: bool) -> dict[str, Any]:
    """A page of items as the API shows it; SDKs ask for the next one by ``last_id``."""
    return {
        "object": "list",
        "data": list(items),
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }


def _items(values: list[Any]) -> tuple[InputItem, ...]:
    if len(values) > MAX_ITEMS:
        raise bad_request(f"'items' must have at most {MAX_ITEMS} items.", "items")
    return read_items(values, "items")


def _check_pair(key: str, text: object) -> None:
    param = f"metadata.{shorten(key, MAX_KEY)}"
    if len(key) > MAX_KEY:
        raise bad_request(f"'{param}': keys must be at most {MAX_KEY} characters long.", param)
    if not isinstance(text, str):
        raise bad_request(f"'{param}' must be a string.", param)
    if len(text) > MAX_VALUE:
        raise bad_request(f"'{param}' must be at most {MAX_VALUE} characters long.", param)
