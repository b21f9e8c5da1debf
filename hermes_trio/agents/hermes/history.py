"""From our messages to the dictionaries that ``run_conversation`` takes. Pure.

The agent marks the dictionaries that it is given, so it gets new ones for every turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hermes_trio.core.messages import Content, Message, ToolCall


def to_history(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """What was said before, in the form of the Chat Completions API."""
    return [_to_dict(message) for message in messages]


def to_content(content: Content) -> Any:
    """The text, or a copy of the parts."""
    return content if isinstance(content, str) else [dict(part) for part in content]


def without_private(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Copies of messages that the agent or its database made, without its own marks."""
    return [{key: value for key, value in each.items() if not key.startswith("_")} for each in messages]


def continued(stored: list[dict[str, Any]], ours: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The longer one of two accounts of a session, if the other is its end; else our own.

    That is how a session which began under another server goes on here: all that we know of it is its end.
    """
    matches = len(stored) >= len(ours) and all(
        _said(theirs) == _said(known)
        for theirs, known in zip(stored[len(stored) - len(ours) :], ours, strict=True)
    )
    return stored if matches else ours


def _said(message: Mapping[str, Any]) -> tuple[Any, Any]:
    content = message.get("content")
    return message.get("role"), content.strip() if isinstance(content, str) else content


def _to_dict(message: Message) -> dict[str, Any]:
    known: dict[str, Any] = {"role": message.role, "content": _trimmed(message)}
    more = {
        "tool_calls": [_to_call(call) for call in message.tool_calls],
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "reasoning": message.reasoning,
    }
    return known | {key: value for key, value in more.items() if value}


def _trimmed(message: Message) -> Any:
    """Hermes trims what the assistant says before it sends it again; a model's cache needs the same text every time."""
    content = to_content(message.content)
    return content.strip() if message.role == "assistant" and isinstance(content, str) else content


def _to_call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }
