"""A request body as a JSON object, or a 400 that says why not.

msgspec refuses what is not strict JSON: other encodings, a byte order mark, NaN, trailing text, lone surrogates. What it lets
through is then walked level by level, without recursion, for the bounds that keep every later step harmless. Most bodies are
too small to break any: a look at their bytes shows it, and saves the walk.
"""

from __future__ import annotations

import re
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
