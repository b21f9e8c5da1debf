"""The Conversations API: lists of items that turns read from and append to."""

from __future__ import annotations

import secrets

from attrs import evolve
from quart import Blueprint, Response, request

from hermes_trio.core.errors import ApiError
from hermes_trio.core.records import Conversation, NoConversation
from hermes_trio.schema.conversations import (
    conversation_object,
    item_list,
    parse_conversation,
    parse_conversation_items,
    parse_conversation_update,
    with_ids,
)
from hermes_trio.web.errors import json_response
from hermes_trio.web.history import CONVERSATION_PREFIX
from hermes_trio.web.request import app_state, int_param, order_param, parse_body, principal

blueprint = Blueprint("conversations", __name__, url_prefix="/v1/conversations")


@blueprint.post("")
async def create_conversation() -> Response:
    """Create a conversation."""
    services = app_state().services
    asked = await parse_body(parse_conversation)
    conversation_id = f"{CONVERSATION_PREFIX}{secrets.token_hex(24)}"
    made = Conversation(principal(), conversation_id, services.wall_clock(), asked.metadata)
    await services.store.save_conversation(made)
    if asked.items:
        await services.store.add_items(
            principal(), conversation_id, with_ids(conversation_id, asked.items)
        )
    return json_response(conversation_object(made))


@blueprint.get("/<conversation_id>")
async def get_conversation(conversation_id: str) -> Response:
    """Return a conversation, without its items."""
    return json_response(conversation_object(await _find(conversation_id)))


@blueprint.post("/<conversation_id>")
async def update_conversation(conversation_id: str) -> Response:
    """Replace the metadata of a conversation."""
    metadata = await parse_body(parse_conversation_update)
    changed = evolve(await _find(conversation_id), metadata=metadata)
    await app_state().services.store.save_conversation(changed)
    return json_response(conversation_object(changed))


@blueprint.delete("/<conversation_id>")
async def delete_conversation(conversation_id: str) -> Response:
    """Delete a conversation and its items; responses stay."""
    if not await app_state().services.store.delete_conversation(principal(), conversation_id):
        raise _not_found(conversation_id)
    return json_response({"id": conversation_id, "object": "conversation.deleted", "deleted": True})


@blueprint.get("/<conversation_id>/items")
async def list_items(conversation_id: str) -> Response:
    """List the items of a conversation, by default newest first, with cursor pagination."""
    await _find(conversation_id)
    newest_first = order_param() == "desc"
    after, limit = request.args.get("after", ""), int_param("limit", 20, 1, 100)
    page = await app_state().services.store.list_items(
        principal(), conversation_id, after, limit, newest_first
    )
    return json_response(item_list(page.items, page.has_more))


@blueprint.post("/<conversation_id>/items")
async def add_items(conversation_id: str) -> Response:
    """Append items to a conversation."""
    items = with_ids(secrets.token_hex(16), await parse_body(parse_conversation_items))
    await _find(conversation_id)
    await app_state().services.store.add_items(principal(), conversation_id, items)
    return json_response(item_list(items, has_more=False))


@blueprint.get("/<conversation_id>/items/<item_id>")
async def get_item(conversation_id: str, item_id: str) -> Response:
    """Return one item."""
    await _find(conversation_id)
    page = await app_state().services.store.list_items(principal(), conversation_id)
    for item in page.items:
        if item["id"] == item_id:
            return json_response(item)
    raise _item_not_found(item_id)


@blueprint.delete("/<conversation_id>/items/<item_id>")
async def delete_item(conversation_id: str, item_id: str) -> Response:
    """Delete one item, and return the conversation."""
    found = await _find(conversation_id)
    if not await app_state().services.store.delete_item(principal(), conversation_id, item_id):
        raise _item_not_found(item_id)
    return json_response(conversation_object(found))


async def _find(conversation_id: str) -> Conversation:
    found = await app_state().services.store.find_conversation(principal(), conversation_id)
    if isinstance(found, NoConversation):
        raise _not_found(conversation_id)
    return found


def _not_found(conversation_id: str) -> ApiError:
    message = f"There is no conversation '{conversation_id}'."
    return ApiError(404, message, param="conversation_id", code="conversation_not_found")


def _item_not_found(item_id: str) -> ApiError:
    return ApiError(404, f"There is no item '{item_id}'.", param="item_id", code="item_not_found")
