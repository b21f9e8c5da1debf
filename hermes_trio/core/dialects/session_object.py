"""Sessions and their messages as the Sessions API shows them, and how an outcome looks there."""

from __future__ import annotations

from typing import Any

from attrs import asdict

from hermes_trio.core.messages import Message
from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.core.sessions import Session, StoredMessage

SOURCE = "api_server"  # what clients of today's server know; which API it was is told by ``kind``


def session_object(session: Session) -> dict[str, Any]:
    """A session. Its system prompt is not told, only that there is one."""
    return {
        "id": session.session_id,
        "source": SOURCE,
        "kind": session.kind,
        "user_id": None,
        "model": session.model or None,
        "title": session.title or None,
        "started_at": session.created_at,
        "ended_at": session.ended_at or None,
        "end_reason": session.end_reason or None,
        **asdict(session.counters),
        "estimated_cost_usd": None,
        "actual_cost_usd": None,
        "parent_session_id": session.parent or None,
        "last_active": session.updated_at,
        "preview": session.preview,
        "has_system_prompt": bool(session.system_prompt),
        "has_model_config": False,
    }


def message_object(stored: StoredMessage, session_id: str) -> dict[str, Any]:
    """A message in its place; clients page by its id."""
    return {
        "id": stored.number,
        "session_id": session_id,
        **message_fields(stored.message),
        "timestamp": stored.at,
        "token_count": None,
        "finish_reason": None,
        "run_id": stored.run_id,
    }


def message_fields(message: Message) -> dict[str, Any]:
    """What was said. Fields that a message does not have are null, as in a row of a table."""
    content = message.content if isinstance(message.content, str) else list(message.content)
    return {
        "role": message.role,
        "content": content,
        "tool_call_id": message.tool_call_id or None,
        "tool_calls": [_call(*each) for each in _calls(message)] or None,
        "tool_name": message.name or None,
        "reasoning": message.reasoning or None,
    }


def _calls(message: Message) -> list[tuple[str, str, str]]:
    return [(call.call_id, call.name, call.arguments) for call in message.tool_calls]


def _call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def end_flags(outcome: Outcome) -> dict[str, Any]:
    """The three booleans that clients of today's server read, and the reason where there is one."""
    reason = {"reason": str(outcome.reason)} if outcome.reason else {}
    return {
        "completed": outcome.status is Status.COMPLETED,
        "partial": outcome.status is not Status.COMPLETED,
        "interrupted": outcome.status is Status.CANCELLED,
        **reason,
    }
