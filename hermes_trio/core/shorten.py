"""Long values made short enough to show: the record keeps them whole, an event carries these.

``shorten_json`` works with a budget in bytes of ASCII-escaped JSON, the form that goes on the wire. A container shares its
budget among its children: those that need less than a fair share are kept whole, the rest divide what is left. A child
is never measured beyond its share, so the work grows with the budget and not with the value.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from math import isfinite
from typing import Any

DEFAULT_LIMIT = 16 * 1024
DEFAULT_DEPTH = 8
MIN_LIMIT = 64

_TOO_DEEP = "..."
_LEFT_OUT = "... [{} characters left out]"
_KEY_LIMIT = 120
# The least that one entry of a shortened container gets: a key, a number and punctuation.
_MIN_SHARE = 160
_TAIL = 48  # room for the note about entries that were left out


def shorten(text: str, limit: int) -> str:
    """At most ``limit`` characters: the head, then a note saying how many were left out."""
    if len(text) <= limit:
        return text
    room = limit - len(_LEFT_OUT.format(len(text)))
    if room <= 0:
        return text[: max(limit, 0)]
    return text[:room] + _LEFT_OUT.format(len(text) - room)


def shorten_json(value: Any, limit: int = DEFAULT_LIMIT, depth: int = DEFAULT_DEPTH) -> Any:
    """A copy that JSON can encode, in at most ``limit`` bytes (64 or more) and ``depth`` levels."""
    return _fit(value, max(limit, MIN_LIMIT), depth)


def encodable(text: str) -> str:
    """The text with lone surrogates replaced: strict UTF-8 encoders refuse them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _fit(value: Any, budget: int, depth: int) -> Any:
    shown = _shown(value, depth)
    if _size(shown, budget, depth) <= budget:
        return _copy(shown, depth)
    if isinstance(shown, str):
        return _fit_text(shown, budget)
    if isinstance(shown, Mapping):
        return _fit_object(shown, budget, depth)
    return _fit_array(shown, budget, depth)  # any other scalar fits the smallest budget there is


def _fit_text(text: str, budget: int) -> str:
    # Escapes make some characters up to twelve bytes long, so the longest cut that fits has to be searched for.
    cuts = range(budget)
    best = bisect_right(cuts, budget, key=lambda cut: _text_size(shorten(text, cut), budget))
    return encodable(shorten(text, best - 1))


def _fit_array(items: Any, budget: int, depth: int) -> Any:
    room = _entries(budget)
    if not room:
        return _left_out(len(items))
    kept = items[:room]
    shares = _shares(kept, [0] * len(kept), budget, depth)
    shown = [_fit(item, share, depth - 1) for item, share in zip(kept, shares, strict=True)]
    return [*shown, _left_out(len(items) - room)] if len(items) > room else shown


def _fit_object(items: Mapping[Any, Any], budget: int, depth: int) -> Any:
    room = _entries(budget)
    if not room:
        return _left_out(len(items))
    keys = [_key(key) for key in islice(items, room)]
    kept = list(islice(items.values(), room))
    shares = _shares(kept, [_text_size(key, _KEY_LIMIT) + 2 for key in keys], budget, depth)
    shown = {key: _fit(item, share, depth - 1) for key, item, share in zip(keys, kept, shares, strict=True)}
    return {**shown, "...": _left_out(len(items) - room)} if len(items) > room else shown


def _entries(budget: int) -> int:
    """How many entries a container with this budget may show when not all of it fits."""
    return (budget - _TAIL) // _MIN_SHARE


def _shares(children: list[Any], overheads: list[int], budget: int, depth: int) -> list[int]:
    """What each child may use: all it needs if that is little, else an equal part of what is left."""
    spare = budget - _TAIL - sum(overheads) - 2 * len(children)
    fair = spare // len(children)
    needs = [_size(_shown(child, depth - 1), fair, depth - 1) for child in children]
    small = [need for need in needs if need <= fair]
    share = (spare - sum(small)) // max(len(children) - len(small), 1)
    return [need if need <= fair else share for need in needs]


def _left_out(count: int) -> str:
    return f"[{count} items left out]"


def _shown(value: Any, depth: int) -> Any:
    """One level of the value in JSON's own types."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return float(value) if isfinite(value) else repr(float(value))  # NaN and infinity are not JSON
    if isinstance(value, Mapping | list | tuple):
        return value if depth > 0 or not value else _TOO_DEEP
    return _described(value)


def _integer(value: int) -> int | str:
    # Strict encoders refuse what does not fit into 64 bits, and Python refuses to print really long numbers.
    bits = value.bit_length()
    if bits < 64:
        return int(value)
    return str(int(value)) if bits < 128 else f"[integer of {bits} bits]"


def _described(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - whatever a foreign __str__ does, showing progress must not fail a run
        return f"<{type(value).__name__}>"


def _key(key: Any) -> str:
    text = _described(key)
    return encodable(text) if _text_size(text, _KEY_LIMIT) <= _KEY_LIMIT else _fit_text(text, _KEY_LIMIT)


def _size(shown: Any, cap: int, depth: int) -> int:
    """Bytes of the encoded copy; counting stops once it is above the cap."""
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
    # Every character takes a byte at least: a long text need not be encoded to be too long.
    return cap + 1 if len(text) > cap else len(json.dumps(encodable(text)))


def _copy(shown: Any, depth: int) -> Any:
    if isinstance(shown, str):
        return encodable(shown)
    if isinstance(shown, Mapping):
        return {_key(key): _copy(_shown(item, depth - 1), depth - 1) for key, item in shown.items()}
    if isinstance(shown, list | tuple):
        return [_copy(_shown(item, depth - 1), depth - 1) for item in shown]
    return shown


MAX_DEPTH = 32
MAX_BITS = 1024


def to_jsonable(value: object, depth: int = MAX_DEPTH) -> Any:
    """A copy made of JSON types only: nobody can change it afterwards, and encoding it cannot fail."""
    match value:
        case None | bool() | str():
            return value
        case int():
            # Python refuses to write out numbers of thousands of digits.
            return int(value) if value.bit_length() <= MAX_BITS else hex(value)
        case float() if math.isfinite(value):
            return float(value)
        case Mapping() if depth:
            return {safe_str(key): to_jsonable(item, depth - 1) for key, item in value.items()}
        case list() | tuple() | set() | frozenset() if depth:
            return [to_jsonable(item, depth - 1) for item in value]
    return safe_str(value)


def safe_str(value: object) -> str:
    """A text for any value, even for one whose own ``__str__`` fails."""
    if isinstance(value, str):
        return str(value)
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - somebody else's code; its failure must not become ours
        return f"<{type(value).__name__}>"


LIMIT = 1_000_000  # characters: a tool may print for hours


class HeadTailBuffer:
    """The beginning and the end of a text that grows; what was between them is counted."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._head: list[str] = []
        self._room = limit // 2
        self._tail: deque[str] = deque()
        self._tail_limit = limit - limit // 2
        self._tail_size = self._left_out = 0

    def add(self, text: str) -> None:
        """More of it."""
        head = text[: self._room]
        self._room -= len(head)
        if head:
            self._head.append(head)
        if rest := text[len(head) :]:
            self._tail.append(rest)
            self._tail_size += len(rest)
            self._shrink()

    def _shrink(self) -> None:
        surplus = self._tail_size - self._tail_limit
        while surplus > 0:
            oldest = self._tail.popleft()
            if len(oldest) > surplus:
                self._tail.appendleft(oldest[surplus:])
            dropped = min(len(oldest), surplus)
            self._left_out += dropped
            self._tail_size -= dropped
            surplus -= dropped

    @property
    def is_cut(self) -> bool:
        """Whether some of it was dropped."""
        return self._left_out > 0

    @property
    def text(self) -> str:
        """All of it, or its two ends around a note."""
        note = f"\n[... {self._left_out} characters left out ...]\n" if self.is_cut else ""
        return "".join((*self._head, note, *self._tail))
