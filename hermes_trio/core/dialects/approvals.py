"""How a question and its answer look on the wire: the same fields on every route that shows them."""

from __future__ import annotations

from typing import Any

from hermes_trio.core.approvals import offered
from hermes_trio.core.changes import ApprovalRequested, ApprovalResolved
from hermes_trio.core.progress import Questions
from hermes_trio.core.shorten import shorten

# One event stays below what line readers take: a character can take twelve bytes when escaped.
SHOWN_CHARACTERS = 4_000
_KEY_CHARACTERS = 200
_MOST_KEYS = 8


def request_fields(request: ApprovalRequested) -> dict[str, Any]:
    """What a person needs to decide, and a client to answer."""
    keys = [shorten(pattern, _KEY_CHARACTERS) for pattern in request.patterns[:_MOST_KEYS]]
    return {
        "approval_id": request.approval_id,
        "toolCallId": request.call_id or None,
        "command": shorten(request.command, SHOWN_CHARACTERS),
        "description": shorten(request.description, SHOWN_CHARACTERS),
        "pattern_key": keys[0] if keys else None,
        "pattern_keys": keys,
        "allow_permanent": request.allow_permanent,
        "choices": [str(choice) for choice in offered(request)],
        "timeout": request.seconds,
    }


def response_fields(resolved: ApprovalResolved) -> dict[str, Any]:
    """What became of it."""
    return {
        "approval_id": resolved.approval_id,
        "toolCallId": resolved.call_id or None,
        "choice": str(resolved.choice),
        "resolved": 1,
        "by": str(resolved.by),
    }


def pending_block(questions: Questions) -> dict[str, Any]:
    """The question that an answer without an id goes to, and how many there are; nothing when nobody waits."""
    if not questions:
        return {}
    return {"approval": request_fields(questions[0]), "approvals_pending": len(questions)}
