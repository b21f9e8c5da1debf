"""Server-sent events as bytes.

JSON keeps Python's default spacing and ASCII escapes: clients of today's server match on substrings such as
``"status": "running"``. Each frame is one piece, because some readers forget a half-read event.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json.encoder import encode_basestring_ascii
from typing import Any

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
