"""What a running tool printed, as much of it as anybody could want."""

from __future__ import annotations

from collections import deque

LIMIT = 1_000_000  # characters: a tool may print for hours


class Printed:
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
