"""What the Responses and Conversations routes answer, as classes."""

from __future__ import annotations

from typing import Any, Literal

from attrs import frozen


@frozen
class ResponseReply:
    """A response. Every field is there, null where it says nothing."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "failed", "in_progress", "cancelled", "queued", "incomplete"]
    background: bool
    completed_at: int | None
    error: dict[str, Any] | None
    incomplete_details: dict[str, Any] | None
    model: str
    output: list[dict[str, Any]]
    conversation: dict[str, Any] | None
    frequency_penalty: float
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    presence_penalty: float
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: dict[str, Any] | None
    safety_identifier: str | None
    service_tier: str
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: str
    user: str | None
    usage: dict[str, Any] | None
    hermes: dict[str, Any] | None = None


@frozen
class ResponseEvent:
    """One event of a stream; the rest of its fields depend on its type."""

    type: str
    sequence_number: int


@frozen
class Deleted:
    """What was forgotten."""

    id: str
    object: str
    deleted: bool


@frozen
class Item:
    """An item of an input, an output or a conversation; the rest of its fields depend on its type."""

    id: str
    type: str


@frozen
class ItemList:
    """A page of items."""

    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


@frozen
class ConversationReply:
    """A conversation, without its items."""

    id: str
    created_at: int
    metadata: dict[str, str]
    object: Literal["conversation"] = "conversation"
