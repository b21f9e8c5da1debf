"""Bounded capture of what a command prints."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class Capture:
    """What was printed: its beginning and its end. The listener gets the first pieces, up to the same limit."""

    def __init__(self, limit: int, listener: Callable[[str], object]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._listener = listener
        self._head_room, self._tail_size, self._live_room = limit // 2, limit - limit // 2, limit
        self._head: list[str] = []
        self._tail = ""
        self._left_out = 0

    @property
    def is_cut(self) -> bool:
        """Whether some of it was dropped."""
        return self._left_out > 0

    @property
    def text(self) -> str:
        """All of it, or the two ends around a note."""
        note = f"\n[... {self._left_out} characters left out ...]\n" if self._left_out else ""
        return "".join((*self._head, note, self._tail))

    def add(self, data: bytes) -> None:
        """Take a piece, which may end in the middle of a character."""
        self._take(self._decoder.decode(data))

    def close(self) -> None:
        """Nothing more comes: half a character is a broken one."""
        self._take(self._decoder.decode(b"", final=True))

    def _take(self, text: str) -> None:
        self._keep(text)
        live, self._live_room = text[: self._live_room], max(self._live_room - len(text), 0)
        if live:
            self._listener(live)

    def _keep(self, text: str) -> None:
        if head := text[: self._head_room]:
            self._head_room -= len(head)
            self._head.append(head)
        tail = self._tail + text[len(head) :]
        dropped = max(len(tail) - self._tail_size, 0)
        self._tail, self._left_out = tail[dropped:], self._left_out + dropped
