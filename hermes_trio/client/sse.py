"""Server-sent events, as they arrive: bytes cut anywhere in, the data of whole frames out."""

from __future__ import annotations

import re

LONGEST_FRAME = 1_000_000
_LINE_END = re.compile(rb"\r\n|\n|\r(?!$)")  # a \r at the very end may be half of a \r\n


class EndlessFrame(ValueError):
    """A frame is longer than any that a server of ours sends."""


class Frames:
    """Takes a stream in pieces. Half a frame at the end of a stream was never sent."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[str]:
        """The data of all frames that are whole now.

        Raises:
            EndlessFrame: there is no end of one in sight.
        """
        *lines, self._rest = _LINE_END.split(self._rest + piece)
        found = [data for line in lines for data in self._take(line)]
        if len(self._rest) + self._size > LONGEST_FRAME:
            raise EndlessFrame("an event of the server has no end")
        return found

    def _take(self, line: bytes) -> list[str]:
        if line:
            self._keep(line)
            return []
        found = ["\n".join(self._data)] if self._data else []
        self._data, self._size = [], 0
        return found

    def _keep(self, line: bytes) -> None:
        """Only data lines count: their numbers are in the data too."""
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
            self._size += len(value)
