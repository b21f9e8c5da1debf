"""How an outcome looks in Chat Completions: one place for streams and batch replies."""

from __future__ import annotations

from typing import Any

from hermes_trio.core.changes import ClientCalled
from hermes_trio.core.messages import Usage
from hermes_trio.core.outcome import Outcome, Reason, Status

# A run that was cancelled is not among them: somebody asked for it, and the hermes block tells.
_ERRORS = (Status.INCOMPLETE, Status.FAILED)


def finish_reason(outcome: Outcome, calls_client: bool = False) -> str:
    """One of stop, tool_calls, length, error."""
    if calls_client and outcome.status is Status.COMPLETED:
        return "tool_calls"
    if outcome.reason is Reason.MAX_OUTPUT_TOKENS:
        return "length"
    return "error" if outcome.status in _ERRORS else "stop"


def client_call(change: ClientCalled) -> dict[str, Any]:
    """A call of a tool that the client runs, in the form of the standard."""
    function = {"name": change.name, "arguments": change.arguments}
    return {"id": change.call_id, "type": "function", "function": function}


def usage_block(usage: Usage) -> dict[str, Any]:
    """Token counts under their Chat Completions names."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def hermes_block(outcome: Outcome) -> dict[str, Any]:
    """What the finish reason cannot say; nothing for a plain completion."""
    if outcome.status is Status.COMPLETED:
        return {}
    return {
        "hermes": {**flags(outcome), "error": outcome.failure.message or None, "error_code": _code(outcome)}
    }


def flags(outcome: Outcome) -> dict[str, Any]:
    """The three booleans that clients of today's server read, and the reason behind them."""
    return {
        "completed": outcome.status is Status.COMPLETED,
        "partial": outcome.status in {Status.INCOMPLETE, Status.CANCELLED},
        "failed": outcome.status is Status.FAILED,
        "reason": str(outcome.reason) or None,
    }


def trouble_blocks(outcome: Outcome) -> dict[str, Any]:
    """Both of what a stream tells at the end of a run that did not complete."""
    return {**hermes_block(outcome), **error_block(outcome)}


def error_block(outcome: Outcome) -> dict[str, Any]:
    """The nested error of a fatal end. SDKs raise on it, so a truncated or a stopped answer has none."""
    if finish_reason(outcome) != "error":
        return {}
    message = outcome.failure.message
    return {
        "error": {"message": message, "type": outcome.failure.kind, "code": _code(outcome), "param": None}
    }


def _code(outcome: Outcome) -> str:
    return "output_truncated" if outcome.reason is Reason.MAX_OUTPUT_TOKENS else str(outcome.reason)
