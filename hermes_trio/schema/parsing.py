"""Request bodies and single fields, checked: everything is valid afterwards, or a 400 names the parameter.

msgspec refuses what is not strict JSON: other encodings, a byte order mark, NaN, trailing text, lone surrogates. What it lets
through is then walked level by level, without recursion, for the bounds that keep every later step harmless. Most bodies are
too small to break any: a look at their bytes shows it, and saves the walk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from attrs import frozen

from hermes_trio.core.errors import ApiError, bad_request

_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**63 - 1
_MANY_DIGITS = re.compile(rb"[0-9]{19}")  # as many as the largest of them has


@frozen
class JsonLimits:
    """How far a body may go."""

    depth: int = 64  # levels of objects and arrays, the body itself being the first
    width: int = 10_000  # entries of one array or object
    entries: int = 500_000  # entries in all: what walks over a body must not hold up the other requests


DEFAULT_LIMITS = JsonLimits()


def parse_object(body: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> dict[str, Any]:
    """The object that the body holds; raises nothing but ``ApiError``."""
    value = _decode(body)
    if not isinstance(value, dict):
        raise _invalid("the body must be a JSON object")
    if not _is_small(body, limits):
        _check(value, limits)
    return value


def _decode(body: bytes) -> Any:
    if not body:
        raise _invalid("the body is empty, it must be a JSON object")
    try:
        return msgspec.json.decode(body)
    except UnicodeDecodeError:
        raise _invalid("the body is not UTF-8") from None
    except msgspec.DecodeError as error:
        raise _invalid(str(error)) from None
    except RecursionError:  # long before the C stack ends: msgspec keeps to Python's recursion limit
        raise _invalid("nested too deeply") from None


def _is_small(body: bytes, limits: JsonLimits) -> bool:
    """Whether a body breaks no bound, whatever it says: an entry takes a byte at least, and a level a bracket."""
    return (
        (size := len(body)) <= limits.width
        and size <= limits.entries
        and body.count(b"{") + body.count(b"[") <= limits.depth
        and _MANY_DIGITS.search(body) is None
    )


def _check(value: dict[str, Any], limits: JsonLimits) -> None:
    level: list[Any] = [value]
    left = limits.entries
    for _ in range(limits.depth):
        left -= sum(map(len, level))
        if left < 0:
            raise _invalid(f"the body has more than {limits.entries} entries")
        level = [child for node in level for child in _containers(node, limits.width)]
        if not level:
            return
    raise _invalid(f"nested too deeply, at most {limits.depth} levels are allowed")


def _containers(node: Any, width: int) -> list[Any]:
    """The entries that have entries of their own, once all entries have been found harmless."""
    if len(node) > width:
        raise _invalid(f"an array or object has more than {width} entries")
    entries = node.values() if type(node) is dict else node
    for entry in entries:
        # Databases and most other languages stop at 64 bits: such a number would fail later, far from its sender.
        if type(entry) is int and not _MIN_INTEGER <= entry <= _MAX_INTEGER:
            raise _invalid("an integer does not fit into 64 bits")
    return [entry for entry in entries if type(entry) in (dict, list)]


def _invalid(reason: str) -> ApiError:
    return bad_request(f"Invalid JSON: {reason}", code="invalid_json")


T = TypeVar("T")

_MISSING = re.compile(r"missing required field `(?P<name>[^`]+)`")
_PLACE = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<where>[^`]*)`)?$", re.DOTALL)


def convert(body: dict[str, Any], kind: type[T]) -> T:
    """The body as a value of the given class.

    Raises:
        ApiError: 400, naming the parameter that does not fit.
    """
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise _refusal(str(error)) from None


def _refusal(message: str) -> Exception:
    place = _PLACE.match(message)
    assert place is not None  # the pattern takes every text
    where, what = place["where"] or "", place["what"]
    missing = _MISSING.search(what)
    if missing is not None:
        param = f"{where}.{missing['name']}".lstrip(".")
        return bad_request(f"Missing required parameter: '{param}'.", param)
    return bad_request(f"Invalid value for '{where}': {what[:1].lower()}{what[1:]}.", where or None)


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
