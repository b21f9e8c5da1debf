"""Single fields and header values, checked: every refusal names the parameter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hermes_trio.core.errors import bad_request

SESSION_ID_HEADER = "X-Hermes-Session-Id"
SESSION_KEY_HEADER = "X-Hermes-Session-Key"
MAX_SESSION_LENGTH = 256

_WORDS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}

# Not only CR, LF and NUL: both values are echoed in headers, where other control characters are no better.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PATH_LIKE = re.compile(r"\.\.|[/\\]|^[A-Za-z]:")


def boolean_like(value: object, default: bool, param: str | None = None) -> bool:  # noqa: ARG001
    """A switch as lenient clients write it; what cannot be read as one counts as not given.

    So nothing is ever refused here: ``param`` is taken only to let all fields be read in the same way.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _WORDS.get(value.strip().lower(), default)
    return bool(value) if isinstance(value, int | float) else default


def text_field(body: Mapping[str, Any], name: str, param: str | None = None, limit: int | None = None) -> str:
    """A text that must be there and must not be blank."""
    text = optional_text(body, name, "", param, limit)
    if not text.strip():
        raise bad_request(
            f"'{param or name}' is required and must be a non-empty string.", param=param or name
        )
    return text


def optional_text(
    body: Mapping[str, Any], name: str, default: str = "", param: str | None = None, limit: int | None = None
) -> str:
    """A text, or the default where it is absent or null."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise bad_request(f"'{param or name}' must be a string.", param=param or name)
    if limit is not None and len(value) > limit:
        raise bad_request(f"'{param or name}' must be at most {limit} characters long.", param=param or name)
    return value


def number_field(
    body: Mapping[str, Any],
    name: str,
    low: float | None = None,
    high: float | None = None,
    param: str | None = None,
) -> float | None:
    """A number within its bounds (both included), None where it is absent or null."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad_request(f"'{param or name}' must be a number.", param=param or name)
    if not (low is None or value >= low) or not (high is None or value <= high):
        raise bad_request(f"'{param or name}' must be {_range(low, high)}.", param=param or name)
    return value


def integer_field(
    body: Mapping[str, Any],
    name: str,
    low: int | None = None,
    high: int | None = None,
    param: str | None = None,
) -> int | None:
    """A whole number within its bounds (both included), None where it is absent or null."""
    value = number_field(body, name, low, high, param)
    if isinstance(value, float) and not (value.is_integer() and abs(value) < 2**63):
        raise bad_request(f"'{param or name}' must be a whole number.", param=param or name)
    return None if value is None else int(value)


def session_id(value: str, param: str = SESSION_ID_HEADER) -> str:
    """The session named by a client, "" for none; never something that a path could be made of."""
    value = _session_value(value, param, "invalid_session_id")
    if _PATH_LIKE.search(value):
        raise bad_request("Invalid session ID: it looks like a path.", param, "invalid_session_id")
    return value


def session_key(value: str) -> str:
    """The memory scope named by a client, "" for none."""
    return _session_value(value, SESSION_KEY_HEADER, "invalid_session_key")


def _session_value(value: str, param: str, code: str) -> str:
    value = value.strip(" \t")
    if _CONTROL.search(value):
        raise bad_request(f"Invalid {param}: control characters are not allowed.", param, code)
    if len(value) > MAX_SESSION_LENGTH:
        raise bad_request(
            f"Invalid {param}: at most {MAX_SESSION_LENGTH} characters are allowed.", param, code
        )
    return value


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"between {low} and {high}"
    return f"at least {low}" if low is not None else f"at most {high}"
