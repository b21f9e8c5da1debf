"""Values copied into JSON types and cut to a size that can be shown.

Records keep the originals; events carry these.

``shorten_json`` works with a budget in bytes of ASCII-escaped JSON, the form that goes on the wire.
A container shares its budget among its children: those that need less than a fair share are kept
whole, the others divide the rest. A child is never measured beyond its share, so the cost is
bounded by the budget, not by the size of the value.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

DEFAULT_LIMIT = 16 * 1024
DEFAULT_DEPTH = 8
MIN_LIMIT = 64

_TOO_DEEP = "..."
_LEFT_OUT = "... [{} characters left out]"
_KEY_LIMIT = 120
# Minimum for one entry of a shortened container: a key, a number and punctuation.
_MIN_SHARE = 160
_TAIL = 48  # reserved for the note about omitted entries


def shorten(text: str, limit: int) -> str:
    """Cut a text to ``limit`` characters: its start, and a note of how many were omitted."""
    if len(text) <= limit:
        return text
    room = limit - len(_LEFT_OUT.format(len(text)))
    if room <= 0:
        return text[: max(limit, 0)]
    return text[:room] + _LEFT_OUT.format(len(text) - room)


def shorten_json(value: Any, limit: int = DEFAULT_LIMIT, depth: int = DEFAULT_DEPTH) -> Any:
    """Return a copy that encodes as JSON in at most ``limit`` bytes (64 or more) and ``depth`` levels."""
    return _fit(value, max(limit, MIN_LIMIT), depth)


def encodable(text: str) -> str:
    """Replace lone surrogates, which strict UTF-8 encoders reject."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _fit(value: Any, budget: int, depth: int) -> Any:
    shown = _shown(value, depth)
    if _size(shown, budget, depth) <= budget:
        return _copy(shown, depth)
    if isinstance(shown, str):
        return _fit_text(shown, budget)
    if isinstance(shown, Mapping):
        return _fit_object(shown, budget, depth)
    return _fit_array(shown, budget, depth)  # every other scalar fits the smallest budget


def _fit_text(text: str, budget: int) -> str:
    # An escaped character takes up to twelve bytes, so the longest cut that fits is found by
    # bisection.
    cuts = range(budget)
    best = bisect_right(cuts, budget, key=lambda cut: _text_size(shorten(text, cut), budget))
    return encodable(shorten(text, best - 1))


def _fit_array(items: Any, budget: int, depth: int) -> Any:
    room = _entries(budget)
    if not room:
        return _omission_note(len(items))
    kept = items[:room]
    shares = _shares(kept, [0] * len(kept), budget, depth)
    shown = [_fit(item, share, depth - 1) for item, share in zip(kept, shares, strict=True)]
    return [*shown, _omission_note(len(items) - room)] if len(items) > room else shown


def _fit_object(items: Mapping[Any, Any], budget: int, depth: int) -> Any:
    room = _entries(budget)
    if not room:
        return _omission_note(len(items))
    keys = [_key(key) for key in islice(items, room)]
    kept = list(islice(items.values(), room))
    shares = _shares(kept, [_text_size(key, _KEY_LIMIT) + 2 for key in keys], budget, depth)
    shown = {
        key: _fit(item, share, depth - 1)
        for key, item, share in zip(keys, kept, shares, strict=True)
    }
    return {**shown, "...": _omission_note(len(items) - room)} if len(items) > room else shown


def _entries(budget: int) -> int:
    """Return how many entries to show of a container that does not fit its budget."""
    return (budget - _TAIL) // _MIN_SHARE


def _shares(children: list[Any], overheads: list[int], budget: int, depth: int) -> list[int]:
    """Return the budget of each child.

    What it needs if that is little, else an equal part of the rest.
    """
    spare = budget - _TAIL - sum(overheads) - 2 * len(children)
    fair = spare // len(children)
    needs = [_size(_shown(child, depth - 1), fair, depth - 1) for child in children]
    small = [need for need in needs if need <= fair]
    share = (spare - sum(small)) // max(len(children) - len(small), 1)
    return [need if need <= fair else share for need in needs]


def _omission_note(count: int) -> str:
    return f"[{count} items left out]"


def _shown(value: Any, depth: int) -> Any:
    """Convert one level of a value to JSON types."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return (
            float(value) if math.isfinite(value) else repr(float(value))
        )  # NaN and infinity are not JSON
    if isinstance(value, Mapping | list | tuple):
        return value if depth > 0 or not value else _TOO_DEEP
    return safe_str(value)


def _integer(value: int) -> int | str:
    # Strict encoders reject integers over 64 bits, and Python refuses to print very long ones.
    bits = value.bit_length()
    if bits < 64:
        return int(value)
    return str(int(value)) if bits < 128 else f"[integer of {bits} bits]"


def _key(key: Any) -> str:
    text = safe_str(key)
    return (
        encodable(text)
        if _text_size(text, _KEY_LIMIT) <= _KEY_LIMIT
        else _fit_text(text, _KEY_LIMIT)
    )


def _size(shown: Any, cap: int, depth: int) -> int:
    """Return the encoded size in bytes. Counting stops above ``cap``."""
    if isinstance(shown, str):
        return _text_size(shown, cap)
    if isinstance(shown, Mapping):
        keys = (_text_size(_key(key), _KEY_LIMIT) + 2 for key in shown)
        return _sum_sizes(zip(keys, shown.values(), strict=False), cap, depth)
    if isinstance(shown, list | tuple):
        return _sum_sizes(((0, item) for item in shown), cap, depth)
    return len(json.dumps(shown))


def _sum_sizes(entries: Iterable[tuple[int, Any]], cap: int, depth: int) -> int:
    total = 2
    for overhead, item in entries:
        total += overhead + 2 + _size(_shown(item, depth - 1), cap - total, depth - 1)
        if total > cap:
            break
    return total


def _text_size(text: str, cap: int) -> int:
    # Every character takes at least one byte, so a long text need not be encoded.
    return cap + 1 if len(text) > cap else len(json.dumps(encodable(text)))


def _copy(shown: Any, depth: int) -> Any:
    if isinstance(shown, str):
        return encodable(shown)
    if isinstance(shown, Mapping):
        return {_key(key): _copy(_shown(item, depth - 1), depth - 1) for key, item in shown.items()}
    if isinstance(shown, list | tuple):
        return [_copy(_shown(item, depth - 1), depth - 1) for item in shown]
    return shown


_MAX_DEPTH = 32
_MAX_BITS = 1024


def to_jsonable(value: object, depth: int = _MAX_DEPTH) -> Any:
    """Copy a value into JSON types.

    The copy shares nothing mutable with the original and always encodes.
    """
    match value:
        case None | bool() | str():
            return value
        case int():
            # Python refuses to print integers of thousands of digits.
            return int(value) if value.bit_length() <= _MAX_BITS else hex(value)
        case float() if math.isfinite(value):
            return float(value)
        case Mapping() if depth:
            return {safe_str(key): to_jsonable(item, depth - 1) for key, item in value.items()}
        case list() | tuple() | set() | frozenset() if depth:
            return [to_jsonable(item, depth - 1) for item in value]
    return safe_str(value)


def safe_str(value: object) -> str:
    """Convert a value to text, even if its ``__str__`` raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - foreign code; its failure must not fail the run
        return f"<{type(value).__name__}>"


MAX_OUTPUT = 1_000_000  # characters: a tool may print for hours


class HeadTailBuffer:
    """A growing text of bounded size.

    It keeps the start and the end, and counts what it dropped between.
    """

    def __init__(self, limit: int = MAX_OUTPUT) -> None:
        self._head: list[str] = []
        self._head_room = limit // 2
        self._tail: deque[str] = deque()
        self._tail_limit = limit - limit // 2
        self._tail_size = self._dropped = 0

    def add(self, text: str) -> None:
        """Append text."""
        head = text[: self._head_room]
        self._head_room -= len(head)
        if head:
            self._head.append(head)
        if rest := text[len(head) :]:
            self._tail.append(rest)
            self._tail_size += len(rest)
        surplus = self._tail_size - self._tail_limit
        while surplus > 0:
            oldest = self._tail.popleft()
            if len(oldest) > surplus:
                self._tail.appendleft(oldest[surplus:])
            dropped = min(len(oldest), surplus)
            self._dropped += dropped
            self._tail_size -= dropped
            surplus -= dropped

    @property
    def is_cut(self) -> bool:
        """Whether text was dropped."""
        return self._dropped > 0

    @property
    def text(self) -> str:
        """The whole text, or its start and end around a note."""
        note = f"\n[... {self._dropped} characters left out ...]\n" if self.is_cut else ""
        return "".join((*self._head, note, *self._tail))
