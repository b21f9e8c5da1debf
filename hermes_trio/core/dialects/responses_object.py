"""The Response object: every field that a client may ask for, null where there is nothing to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hermes_trio.core.dialects.approvals import pending_block
from hermes_trio.core.dialects.chat import flags
from hermes_trio.core.dialects.responses_items import ResultForm
from hermes_trio.core.dialects.responses_output import output_items
from hermes_trio.core.items import Item
from hermes_trio.core.messages import Usage
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.progress import Questions
from hermes_trio.core.record import RunHeader

IN_PROGRESS = "in_progress"

# Fields of the request that the answer repeats, with what holds when a client does not say. Strict clients want numbers
# and strings here, not null.
ECHO: Mapping[str, Any] = MappingProxyType(
    {
        "frequency_penalty": 0.0,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": None,
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
    }
)


def response_object(
    header: RunHeader, items: Sequence[Item], outcome: Outcome | None = None, ended_after: float = 0.0
) -> dict[str, Any]:
    """A run as ``retrieve`` and batch replies show it, from its items. No outcome: it is in progress."""
    output = output_items(header.run_id, items, outcome, ResultForm.TEXT)
    return response_body(header, output, outcome, ended_after)


def response_body(
    header: RunHeader,
    output: Sequence[Any],
    outcome: Outcome | None = None,
    ended_after: float = 0.0,
    questions: Questions = (),
) -> dict[str, Any]:
    """The object around an output that is already in the form of the wire."""
    return {
        "id": header.run_id,
        "object": "response",
        "created_at": header.stamp.created,
        "status": IN_PROGRESS if outcome is None else str(outcome.status),
        "background": header.background,
        "completed_at": _completed_at(header, outcome, ended_after),
        "error": _error(outcome),
        "incomplete_details": _incomplete_details(outcome),
        "model": header.stamp.model,
        "output": list(output),
        "conversation": {"id": header.conversation} if header.conversation else None,
        **_echo(header),
        "usage": None if outcome is None else usage_block(outcome.usage),
        **(_waiting(questions) if outcome is None else _hermes(header, outcome, ended_after)),
    }


def usage_block(usage: Usage) -> dict[str, Any]:
    """Token counts under their Responses names."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def _echo(header: RunHeader) -> dict[str, Any]:
    """What the request said; instructions that it did not give are those the run works with."""
    given = {name: header.request[name] for name in ECHO if header.request.get(name) is not None}
    return {**ECHO, "instructions": header.instructions or None, **given}


def _completed_at(header: RunHeader, outcome: Outcome | None, ended_after: float) -> int | None:
    if outcome is None or outcome.status is not Status.COMPLETED:
        return None
    return int(header.stamp.created_at + ended_after)


def _error(outcome: Outcome | None) -> dict[str, Any] | None:
    """The codes are a closed list in the SDKs; this is the one that fits whatever happened to an agent."""
    if outcome is None or outcome.status is not Status.FAILED:
        return None
    return {"code": "server_error", "message": outcome.failure.message or "The agent failed."}


def _incomplete_details(outcome: Outcome | None) -> dict[str, Any] | None:
    """Reasons are a closed list too: only truncation has one, the others stand in the ``hermes`` field."""
    if outcome is None or outcome.reason is not Reason.MAX_OUTPUT_TOKENS:
        return None
    return {"reason": "max_output_tokens"}


def _waiting(questions: Questions) -> dict[str, Any]:
    """Why a response that is in progress does not go on, if somebody has to be asked."""
    return {"hermes": pending_block(questions)} if questions else {}


def _hermes(header: RunHeader, outcome: Outcome, ended_after: float) -> dict[str, Any]:
    """What the standard fields cannot say; nothing for a plain completion in its own session."""
    if outcome.status is Status.COMPLETED and not outcome.session_id:
        return {}
    return {
        "hermes": {
            **flags(outcome),
            "error": outcome.failure.message or None,
            "session_id": outcome.session_id or header.session_id,
            "duration": round(ended_after, 3),
        }
    }
