"""``/v1/conversations``: lists of items that turns read from and add to."""

from __future__ import annotations

from attrs import evolve
from quart import Response, request

from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.record import Conversation, NoConversation
from hermes_trio.schema.conversations import (
    conversation_object,
    item_list,
    parse_conversation,
    parse_conversation_items,
    parse_conversation_update,
)
from hermes_trio.schema.input_items import with_ids
from hermes_trio.web.asked import body, principal, whole_number
from hermes_trio.web.errors import json_response
from hermes_trio.web.ids import random_hex
from hermes_trio.web.options import Site
from hermes_trio.web.past import CONVERSATION_PREFIX


async def create(site: Site) -> Response:
    """Make a conversation."""
    asked = parse_conversation(await body())
    made = Conversation(
        principal(),
        f"{CONVERSATION_PREFIX}{random_hex(24)}",
        site.services.wall_clock(),
        asked.metadata,
    )
    await site.services.store.save_conversation(made)
    if asked.items:
        items = with_ids(made.conversation_id, asked.items)
        await site.services.store.add_items(principal(), made.conversation_id, items)
    return json_response(conversation_object(made))


async def show(site: Site, conversation_id: str) -> Response:
    """A conversation, without its items."""
    return json_response(conversation_object(await _find(site, conversation_id)))


async def update(site: Site, conversation_id: str) -> Response:
    """Give a conversation other metadata."""
    metadata = parse_conversation_update(await body())
    changed = evolve(await _find(site, conversation_id), metadata=metadata)
    await site.services.store.save_conversation(changed)
    return json_response(conversation_object(changed))


async def delete(site: Site, conversation_id: str) -> Response:
    """Forget a conversation and its items; responses stay."""
    if not await site.services.store.delete_conversation(principal(), conversation_id):
        raise _not_found(conversation_id)
    return json_response({"id": conversation_id, "object": "conversation.deleted", "deleted": True})


async def list_items(site: Site, conversation_id: str) -> Response:
    """The items of a conversation, page by page, newest first unless asked otherwise."""
    await _find(site, conversation_id)
    order = request.args.get("order", "desc")
    if order not in {"asc", "desc"}:
        raise bad_request("'order' must be 'asc' or 'desc'.", "order")
    after, limit = request.args.get("after", ""), whole_number("limit", 20, 1, 100)
    page = await site.services.store.items(principal(), conversation_id, after, limit, order == "desc")
    return json_response(item_list(page.items, page.has_more))


async def add_items(site: Site, conversation_id: str) -> Response:
    """Append items."""
    items = with_ids(random_hex(16), parse_conversation_items(await body()))
    await _find(site, conversation_id)
    await site.services.store.add_items(principal(), conversation_id, items)
    return json_response(item_list(items, has_more=False))


async def show_item(site: Site, conversation_id: str, item_id: str) -> Response:
    """One item."""
    await _find(site, conversation_id)
    page = await site.services.store.items(principal(), conversation_id)
    for item in page.items:
        if item["id"] == item_id:
            return json_response(item)
    raise _no_item(item_id)


async def delete_item(site: Site, conversation_id: str, item_id: str) -> Response:
    """Remove one item; answers with the conversation."""
    found = await _find(site, conversation_id)
    if not await site.services.store.delete_item(principal(), conversation_id, item_id):
        raise _no_item(item_id)
    return json_response(conversation_object(found))


async def _find(site: Site, conversation_id: str) -> Conversation:
    found = await site.services.store.find_conversation(principal(), conversation_id)
    if isinstance(found, NoConversation):
        raise _not_found(conversation_id)
    return found


def _not_found(conversation_id: str) -> ApiError:
    message = f"There is no conversation '{conversation_id}'."
    return ApiError(404, message, param="conversation_id", code="conversation_not_found")


def _no_item(item_id: str) -> ApiError:
    return ApiError(404, f"There is no item '{item_id}'.", param="item_id", code="item_not_found")
