"""Convert messages to the form that ``run_conversation`` takes, and its result to ours. Pure.

``run_conversation`` modifies the dictionaries that it is given, so every turn gets new ones.
Results of turns that end early lack most keys, and the flags contradict each other: a turn
interrupted in the middle of its answer says ``completed`` too. Everything is therefore read with a
default, and the first matching rule decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hermes_trio.core.events import Result, Verdict
from hermes_trio.core.messages import Content, Message, Usage
from hermes_trio.core.shorten import safe_str

# -- history --


def to_history(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Convert the history to the form of the Chat Completions API."""
    return [_to_dict(message) for message in messages]


def to_content(content: Content) -> Any:
    """Return the text, or a copy of the parts."""
    return content if isinstance(content, str) else [dict(part) for part in content]


def without_private_keys(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Copy messages of the agent or its database without the agent's own marks."""
    return [
        {key: value for key, value in each.items() if not key.startswith("_")} for each in messages
    ]


def merge_history(stored: list[dict[str, Any]], ours: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the stored history if ours is its tail; else ours.

    This continues a session that began under another server, of which we know only the tail.
    """
    matches = len(stored) >= len(ours) and all(
        _comparable(theirs) == _comparable(known)
        for theirs, known in zip(stored[len(stored) - len(ours) :], ours, strict=True)
    )
    return stored if matches else ours


def _comparable(message: Mapping[str, Any]) -> tuple[Any, Any]:
    content = message.get("content")
    return message.get("role"), content.strip() if isinstance(content, str) else content


def _to_dict(message: Message) -> dict[str, Any]:
    content = to_content(message.content)
    if message.role == "assistant" and isinstance(content, str):
        # Hermes strips it before sending it again, and the model's prompt cache needs the same text
        # every time.
        content = content.strip()
    optional = {
        "tool_calls": [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ],
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "reasoning": message.reasoning,
    }
    known: dict[str, Any] = {"role": message.role, "content": content}
    return known | {key: value for key, value in optional.items() if value}


# -- results --


def to_result(raw: Mapping[str, Any], usage: Usage, session_id: str = "") -> Result:
    """Convert the result of a turn.

    Args:
        raw: what ``run_conversation`` returned.
        usage: the tokens of the turn.
        session_id: the session that the agent moved to; "" if it stayed.
    """
    verdict = verdict_of(raw)
    final, error = _text(raw, "final_response"), _text(raw, "error")
    # The final text of an interrupted turn is a note about the interrupt, or was streamed. That of
    # a turn that ended early may be its error.
    is_answer = verdict is Verdict.COMPLETED or (
        verdict is not Verdict.INTERRUPTED and final != error
    )
    return Result(
        text=final if is_answer else "",
        verdict=verdict,
        error=_error_message(raw, verdict),
        usage=usage,
        session_id=session_id,
    )


def verdict_of(raw: Mapping[str, Any]) -> Verdict:
    """Determine how the turn ended."""
    rules = (
        (Verdict.INTERRUPTED, raw.get("interrupted")),
        (Verdict.FAILED, raw.get("failed")),
        (Verdict.TRUNCATED, raw.get("partial") and "truncat" in _text(raw, "error").lower()),
        (Verdict.INCOMPLETE, raw.get("partial") or not raw.get("completed")),
    )
    return next((verdict for verdict, holds in rules if holds), Verdict.COMPLETED)


def usage_of(agent: object) -> Usage:
    """Return the tokens of a turn, which its agent has counted: each turn has its own agent."""

    def count(name: str) -> int:
        value = getattr(agent, name, 0)
        return value if isinstance(value, int) and value > 0 else 0

    return Usage(
        input_tokens=count("session_prompt_tokens"),
        output_tokens=count("session_completion_tokens"),
        cached_tokens=count("session_cache_read_tokens"),
        cache_write_tokens=count("session_cache_write_tokens"),
        reasoning_tokens=count("session_reasoning_tokens"),
    )


def _error_message(raw: Mapping[str, Any], verdict: Verdict) -> str:
    if verdict is Verdict.COMPLETED:
        return ""
    keys = ("interrupt_message",) if verdict is Verdict.INTERRUPTED else ("error", "failure_reason")
    message = next(filter(None, (_text(raw, key) for key in keys)), "")
    return message or _text(raw, "turn_exit_reason")


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    return "" if value is None else safe_str(value)
