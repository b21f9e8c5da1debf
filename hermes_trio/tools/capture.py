"""Bounded capture of what a command prints."""

from __future__ import annotations

import codecs
from collections.abc import Callable

from hermes_trio.core.shorten import HeadTailBuffer


class Capture:
    """What was printed: its beginning and its end. The listener gets the first pieces, up to the same limit."""

    def __init__(self, limit: int, listener: Callable[[str], object]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._listener = listener
        self._printed = HeadTailBuffer(limit)
        self._live_room = limit

    @property
    def is_cut(self) -> bool:
        """Whether some of it was dropped."""
        return self._printed.is_cut

    @property
    def text(self) -> str:
        """All of it, or the two ends around a note."""
        return self._printed.text

    def add(self, data: bytes) -> None:
        """Take a piece, which may end in the middle of a character."""
        self._take(self._decoder.decode(data))

    def close(self) -> None:
        """Nothing more comes: half a character is a broken one."""
        self._take(self._decoder.decode(b"", final=True))

    def _take(self, text: str) -> None:
        self._printed.add(text)
        live, self._live_room = text[: self._live_room], max(self._live_room - len(text), 0)
        if live:
            self._listener(live)
