"""Plain JSON values out of whatever an agent hands over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 32
MAX_BITS = 1024


def plain(value: object, depth: int = MAX_DEPTH) -> Any:
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
            return {text_of(key): plain(item, depth - 1) for key, item in value.items()}
        case list() | tuple() | set() | frozenset() if depth:
            return [plain(item, depth - 1) for item in value]
    return text_of(value)


def text_of(value: object) -> str:
    """A text for any value, even for one whose own ``__str__`` fails."""
    if isinstance(value, str):
        return str(value)
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - somebody else's code; its failure must not become ours
        return f"<{type(value).__name__}>"
