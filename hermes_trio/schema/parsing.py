"""Parse request bodies, single fields and headers. Every error is a 400 that names the parameter.

msgspec rejects what is not strict JSON: other encodings, a byte order mark, NaN, trailing text,
lone surrogates. What it accepts is then walked level by level, without recursion, to enforce bounds
that keep every later step cheap. Most bodies are too small to exceed any bound, which their bytes
show, so the walk is skipped for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from attrs import frozen

from hermes_trio.core.errors import ApiError, bad_request

_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**63 - 1
_SLICE = 65_536  # bytes that are searched in one step
_MANY_DIGITS = re.compile(rb"[0-9]{19}")  # as many as the largest 64-bit integer has


@frozen
class JsonLimits:
    """Bounds on the structure of a body."""

    depth: int = 64  # levels of objects and arrays, including the body itself
    width: int = 10_000  # entries of one array or object
    entries: int = (
        200_000  # entries in total, so that decoding a body does not delay other requests
    )


DEFAULT_LIMITS = JsonLimits()


def parse_object(body: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        ApiError: 400, for everything else.
    """
    if _has_too_many(body, limits.entries):
        raise _too_many(limits)
    value = _decode(body)
    if not isinstance(value, dict):
        raise _invalid("the body must be a JSON object")
    if not _is_small(body, limits):
        _check(value, limits)
    return value


def _has_too_many(body: bytes, entries: int) -> bool:
    """Return whether a body certainly has more entries than that, without decoding it.

    The decoder works in one piece, during which nothing else in the process can run: millions of
    empty arrays would take it too long. Commas and brackets in strings do not count. They are left
    out slice by slice, because each step of that is one piece of work, too.
    """
    if _least_entries(*_punctuation(body)) <= entries:
        return False
    body = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # every quote left delimits a string
    commas = brackets = in_string = 0
    for start in range(0, len(body), _SLICE):
        parts = body[start : start + _SLICE].split(b'"')
        more_commas, more_brackets = _punctuation(b"".join(parts[in_string::2]))
        commas, brackets = commas + more_commas, brackets + more_brackets
        if _least_entries(commas, brackets) > entries:
            return True
        in_string ^= (len(parts) - 1) % 2
    return False


def _punctuation(text: bytes) -> tuple[int, int]:
    return text.count(b","), text.count(b"[") + text.count(b"{")


def _least_entries(commas: int, brackets: int) -> int:
    """Return how many entries a body must have: one after each comma, and each container but the first."""
    return max(commas, brackets - 1)


def _decode(body: bytes) -> Any:
    if not body:
        raise _invalid("the body is empty, it must be a JSON object")
    try:
        return msgspec.json.decode(body)
    except UnicodeDecodeError:
        raise _invalid("the body is not UTF-8") from None
    except msgspec.DecodeError as error:
        raise _invalid(str(error)) from None
    except (
        RecursionError
    ):  # raised well before the C stack overflows: msgspec respects Python's recursion limit
        raise _invalid("nested too deeply") from None


def _is_small(body: bytes, limits: JsonLimits) -> bool:
    """Return whether a body is too small to exceed a bound.

    Each entry takes a byte, and each level a bracket.
    """
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
            raise _too_many(limits)
        level = [child for node in level for child in _containers(node, limits.width)]
        if not level:
            return
    raise _invalid(f"nested too deeply, at most {limits.depth} levels are allowed")


def _containers(node: Any, width: int) -> list[Any]:
    """Check all entries of a node and return those that are containers."""
    if len(node) > width:
        raise _invalid(f"an array or object has more than {width} entries")
    entries = node.values() if type(node) is dict else node
    for entry in entries:
        # Databases and most languages stop at 64 bits: a larger number would fail later, far from
        # its cause.
        if type(entry) is int and not _MIN_INTEGER <= entry <= _MAX_INTEGER:
            raise _invalid("an integer does not fit into 64 bits")
    return [entry for entry in entries if type(entry) in (dict, list)]


def _too_many(limits: JsonLimits) -> ApiError:
    return _invalid(f"the body has more than {limits.entries} entries")


def _invalid(reason: str) -> ApiError:
    return bad_request(f"Invalid JSON: {reason}", code="invalid_json")


T = TypeVar("T")

_MISSING = re.compile(r"missing required field `(?P<name>[^`]+)`")
_PLACE = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<where>[^`]*)`)?$", re.DOTALL)


def convert(body: dict[str, Any], kind: type[T]) -> T:
    """Convert a body to the given class.

    Raises:
        ApiError: 400, naming the parameter that does not fit.
    """
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise _refusal(str(error)) from None


def _refusal(message: str) -> Exception:
    place = _PLACE.match(message)
    assert place is not None  # the pattern matches every text
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

# Both values are echoed in headers, so all control characters are rejected, not only CR, LF and
# NUL.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PATH_LIKE = re.compile(r"\.\.|[/\\]|^[A-Za-z]:")


def parse_bool(value: object, default: bool) -> bool:
    """Parse a boolean as lenient clients write it.

    Anything else counts as not given; nothing is rejected.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _WORDS.get(value.strip().lower(), default)
    return bool(value) if isinstance(value, int | float) else default


def require_text(
    body: Mapping[str, Any], name: str, param: str | None = None, limit: int | None = None
) -> str:
    """Return a required string that is not blank."""
    text = read_text(body, name, "", param, limit)
    if not text.strip():
        raise bad_request(
            f"'{param or name}' is required and must be a non-empty string.", param=param or name
        )
    return text


def read_text(
    body: Mapping[str, Any],
    name: str,
    default: str = "",
    param: str | None = None,
    limit: int | None = None,
) -> str:
    """Return a string, or the default if it is absent or null."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise bad_request(f"'{param or name}' must be a string.", param=param or name)
    if limit is not None and len(value) > limit:
        raise bad_request(
            f"'{param or name}' must be at most {limit} characters long.", param=param or name
        )
    return value


def read_number(
    body: Mapping[str, Any],
    name: str,
    low: float | None = None,
    high: float | None = None,
    param: str | None = None,
) -> float | None:
    """Return a number within its bounds (inclusive), None if it is absent or null."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad_request(f"'{param or name}' must be a number.", param=param or name)
    if not (low is None or value >= low) or not (high is None or value <= high):
        bounds = f"at least {low}" if low is not None else f"at most {high}"
        if low is not None and high is not None:
            bounds = f"between {low} and {high}"
        raise bad_request(f"'{param or name}' must be {bounds}.", param=param or name)
    return value


def read_integer(
    body: Mapping[str, Any],
    name: str,
    low: int | None = None,
    high: int | None = None,
    param: str | None = None,
) -> int | None:
    """Return an integer within its bounds (inclusive), None if it is absent or null."""
    value = read_number(body, name, low, high, param)
    if isinstance(value, float) and not (value.is_integer() and abs(value) < 2**63):
        raise bad_request(f"'{param or name}' must be a whole number.", param=param or name)
    return None if value is None else int(value)


def parse_session_id(value: str, param: str = SESSION_ID_HEADER) -> str:
    """Validate a session id from a client, "" for none. Ids that look like a path are rejected."""
    value = _session_value(value, param, "invalid_session_id")
    if _PATH_LIKE.search(value):
        raise bad_request("Invalid session ID: it looks like a path.", param, "invalid_session_id")
    return value


def parse_session_key(value: str) -> str:
    """Validate a session key (a memory scope) from a client, "" for none."""
    return _session_value(value, SESSION_KEY_HEADER, "invalid_session_key")


@frozen
class SessionHeaders:
    """What the request headers say about the session."""

    session_id: str  # "" if the client names none
    key: str  # the client's long-term memory scope


def parse_session_headers(headers: Mapping[str, str]) -> SessionHeaders:
    """Read and validate the headers that name a session. The names of headers are in lower case.

    Raises:
        ApiError: 400, naming the header.
    """
    return SessionHeaders(
        parse_session_id(_utf8_header(headers, SESSION_ID_HEADER)),
        parse_session_key(_utf8_header(headers, SESSION_KEY_HEADER)),
    )


def _utf8_header(headers: Mapping[str, str], name: str) -> str:
    """Return a header that responses repeat.

    Request headers are decoded as Latin-1, and Quart encodes response headers as UTF-8, so only
    UTF-8 survives the way there and back.
    """
    try:
        return headers.get(name.lower(), "").encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        raise bad_request(f"Invalid {name}: it is not UTF-8.", name, "invalid_header") from None


def _session_value(value: str, param: str, code: str) -> str:
    value = value.strip(" \t")
    if _CONTROL.search(value):
        raise bad_request(f"Invalid {param}: control characters are not allowed.", param, code)
    if len(value) > MAX_SESSION_LENGTH:
        raise bad_request(
            f"Invalid {param}: at most {MAX_SESSION_LENGTH} characters are allowed.", param, code
        )
    return value
