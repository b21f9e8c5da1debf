"""Server-sent events as bytes.

JSON keeps Python's default spacing and ASCII escapes: clients of today's server match on substrings such as
``"status": "running"``. Each frame is one piece, because some readers forget a half-read event.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json.encoder import encode_basestring_ascii
from typing import Any

from hermes_trio.core.approvals import offered_choices
from hermes_trio.core.changes import ApprovalRequested, ApprovalResolved
from hermes_trio.core.shorten import shorten

# JSON may hold them as they are, but some readers of lines take them for the end of one.
_LINE_ENDS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})

KEEPALIVE = b": keepalive\n\n"
DONE = b"data: [DONE]\n\n"


encode: Callable[[Any], str] = json.JSONEncoder().encode
"""JSON text as the wire has it."""


quoted: Callable[[str], str] = encode_basestring_ascii
"""The same for a text, by a shorter way: tokens are many."""


def encode_raw(value: Any) -> str:
    """The same with all alphabets as they are, for the one dialect that has them so."""
    return json.dumps(value, ensure_ascii=False).translate(_LINE_ENDS)


def data_frame(payload: str) -> bytes:
    """A frame without a name. The payload is JSON text, so it holds no line break."""
    return f"data: {payload}\n\n".encode("ascii")


def named_frame(name: str, payload: str) -> bytes:
    """A frame under an event name."""
    return f"event: {name}\ndata: {payload}\n\n".encode("ascii")


def numbered_frame(number: int, payload: str) -> bytes:
    """A frame that a browser can ask to go on after, by its number."""
    return f"id: {number}\ndata: {payload}\n\n".encode("ascii")


def full_frame(name: str, number: int, payload: str) -> bytes:
    """A frame with a name and a number. What UTF-8 cannot hold becomes an escape, which JSON has for it."""
    return f"event: {name}\nid: {number}\ndata: {payload}\n\n".encode("utf-8", "backslashreplace")


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
        "choices": [str(choice) for choice in offered_choices(request)],
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


def pending_block(questions: tuple[ApprovalRequested, ...]) -> dict[str, Any]:
    """The question that an answer without an id goes to, and how many there are; nothing when nobody waits."""
    if not questions:
        return {}
    return {"approval": request_fields(questions[0]), "approvals_pending": len(questions)}
