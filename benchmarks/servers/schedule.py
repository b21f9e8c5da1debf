"""The load of ``benchmarks.agent``, for servers in environments without hermes_trio.

Uses only the standard library. A test compares it with the original: same words, tokens and times.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple


class Load(NamedTuple):
    """The load of one turn."""

    tokens: int = 100
    rate: float = 0.0
    size: int = 20
    stamp: bool = False
    mode: str = "sync"
    wait: float = 0.0  # seconds of silence before the first token

    def token(self, number: int) -> str:
        """Return a piece of text with its number, and with the time if requested."""
        if self.stamp:
            return _sized(f"{time.monotonic_ns()} t{number:06d}", max(self.size, 28))
        return _sized(f"t{number:06d}", self.size)

    def due(self, start: float, number: int) -> float:
        """Return when a token is due."""
        return start + (number - 1) / self.rate if self.rate else start


def parse_load(text: str) -> Load:
    """Read a message such as ``tokens=100 rate=50 stamp=1``."""
    words = dict(word.split("=", 1) for word in text.split())
    return Load(
        tokens=int(words.get("tokens", "100")),
        rate=float(words.get("rate", "0")),
        size=int(words.get("size", "20")),
        stamp=words.get("stamp") == "1",
        mode=words.get("mode", "sync"),
        wait=float(words.get("wait", "0")),
    )


def speak(load: Load, say: Callable[[str], object], interrupted: threading.Event) -> None:
    """Produce the load in this thread."""
    if load.wait:
        interrupted.wait(load.wait)
    start = time.monotonic()
    for number in range(1, load.tokens + 1):
        left = load.due(start, number) - time.monotonic() if load.rate else 0
        if interrupted.wait(left) if left > 0 else interrupted.is_set():
            break
        say(load.token(number))


def _sized(label: str, size: int) -> str:
    return label[-size:] if size <= len(label) else f"{label:.<{size - 1}} "
