"""What the dialects share: JSON and server-sent events as bytes, and the fields of approval events.

JSON keeps Python's default spacing and ASCII escapes, because existing clients match on substrings
such as ``"status": "running"``. Each frame is sent in one piece, because some clients drop a
partially received event.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json.encoder import encode_basestring_ascii
from typing import Any

from hermes_trio.core.approvals import offered_choices
from hermes_trio.core.changes import ApprovalRequested, ApprovalResolved
from hermes_trio.core.shorten import shorten

# Valid inside JSON strings, but some line readers split on them.
_LINE_ENDS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})

MAX_EVENTS_PER_CHANGE = 8
"""The most numbered events that any dialect makes of one change, other than the end."""

KEEPALIVE = b": keepalive\n\n"
DONE = b"data: [DONE]\n\n"

# Front ends read line by line and give up on long lines (128 KiB in the oldest). A value can occur
# twice in its event, and one character can take twelve bytes when escaped.
SHOWN_CHARACTERS = 4_000
PREVIEW_CHARACTERS = 200
_KEY_CHARACTERS = 200
_MAX_KEYS = 8


encode: Callable[[Any], str] = json.JSONEncoder().encode
"""Encode a value as JSON text in the form of the wire."""


quoted: Callable[[str], str] = encode_basestring_ascii
"""Encode a string as JSON text: the same as ``encode``, but faster, for tokens."""


def encode_raw(value: Any) -> str:
    """Encode without escaping non-ASCII characters, for the one dialect that has them so."""
    return json.dumps(value, ensure_ascii=False).translate(_LINE_ENDS)


def data_frame(payload: str) -> bytes:
    """Return an unnamed event. The payload is JSON text, so it contains no line break."""
    return f"data: {payload}\n\n".encode("ascii")


def named_frame(name: str, payload: str) -> bytes:
    """Return an event with a name."""
    return f"event: {name}\ndata: {payload}\n\n".encode("ascii")


def numbered_frame(number: int, payload: str) -> bytes:
    """Return an event with an id, which browsers send back when they reconnect."""
    return f"id: {number}\ndata: {payload}\n\n".encode("ascii")


def full_frame(name: str, number: int, payload: str) -> bytes:
    """Return an event with a name and an id.

    Lone surrogates, which UTF-8 cannot encode, become JSON escapes.
    """
    return f"event: {name}\nid: {number}\ndata: {payload}\n\n".encode("utf-8", "backslashreplace")


def request_fields(request: ApprovalRequested) -> dict[str, Any]:
    """Return what a person needs to decide, and a client to answer."""
    keys = [shorten(pattern, _KEY_CHARACTERS) for pattern in request.patterns[:_MAX_KEYS]]
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


def resolution_fields(resolved: ApprovalResolved) -> dict[str, Any]:
    """Return how an approval request was answered."""
    return {
        "approval_id": resolved.approval_id,
        "toolCallId": resolved.call_id or None,
        "choice": str(resolved.choice),
        "resolved": 1,
        "by": str(resolved.by),
    }


def pending_fields(requests: tuple[ApprovalRequested, ...]) -> dict[str, Any]:
    """Return the oldest open request and the number of open ones; nothing if there are none."""
    if not requests:
        return {}
    return {"approval": request_fields(requests[0]), "approvals_pending": len(requests)}


STATUS_LINE = "status_line"
"""Where the request in a run's header says that its client shows status events."""


def status_event(description: str, done: bool) -> dict[str, Any]:
    """Return the field ``event``, which Open WebUI shows as a live status line."""
    return {"event": {"type": "status", "data": {"description": description, "done": done}}}


def approval_status(change: ApprovalRequested | ApprovalResolved) -> dict[str, Any]:
    """Return the status event of an approval request, or of its answer."""
    if isinstance(change, ApprovalResolved):
        return status_event(f"Approval: {change.choice}", done=True)
    command = shorten(change.command, PREVIEW_CHARACTERS)
    return status_event(f"Waiting for an approval: {command}", done=False)
