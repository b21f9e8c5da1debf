"""What the Sessions routes answer, as classes."""

from __future__ import annotations

from typing import Any, Literal

from attrs import frozen


@frozen
class SessionObject:
    """A session. Its system prompt is not told, only that there is one."""

    id: str
    source: Literal["api_server"]
    kind: str  # the API that made it: chat, responses, runs, sessions
    user_id: str | None
    model: str | None
    title: str | None
    started_at: float
    ended_at: float | None
    end_reason: str | None
    message_count: int
    tool_call_count: int
    api_call_count: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    estimated_cost_usd: float | None
    actual_cost_usd: float | None
    parent_session_id: str | None
    last_active: float
    preview: str
    has_system_prompt: bool
    has_model_config: bool


@frozen
class SessionReply:
    """One session."""

    object: Literal["hermes.session"]
    session: SessionObject


@frozen
class SessionList:
    """A page of sessions, the one with the latest activity first."""

    object: Literal["list"]
    data: list[SessionObject]
    limit: int
    offset: int
    has_more: bool


@frozen
class SessionGone:
    """A session that was deleted."""

    object: Literal["hermes.session.deleted"]
    id: str
    deleted: bool


@frozen
class SessionMessage:
    """One message of a transcript."""

    id: int
    session_id: str
    role: str
    content: str | list[dict[str, Any]]
    tool_call_id: str | None
    tool_calls: list[dict[str, Any]] | None
    tool_name: str | None
    reasoning: str | None
    timestamp: float
    token_count: int | None
    finish_reason: str | None
    run_id: str


@frozen
class SessionMessages:
    """A page of a transcript, in the order it was said."""

    object: Literal["list"]
    session_id: str
    data: list[SessionMessage]
    has_more: bool


@frozen
class SessionChatReply:
    """A turn in one piece."""

    object: Literal["hermes.session.chat.completion"]
    session_id: str
    run_id: str
    message: dict[str, Any]
    usage: dict[str, Any]
    completed: bool
    partial: bool
    interrupted: bool
    reason: str | None = None


@frozen
class SessionEvent:
    """One event of a turn; the rest of its fields depend on its kind."""

    session_id: str
    run_id: str
    seq: int
    ts: float
