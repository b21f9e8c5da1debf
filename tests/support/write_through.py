"""The server's side of write-through, for clients in memory. It enforces the contract strictly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hermes_trio.runs.delivery import EXTENSION

PARTIAL_EVERY = 3  # of so many parts, the connection takes one only in part

_is_offered = False


@contextmanager
def offered(is_offered: bool) -> Iterator[None]:
    """Let clients in memory offer the extension, or not, for the length of a block."""
    global _is_offered  # noqa: PLW0603 - a setting of the test run
    before, _is_offered = _is_offered, is_offered
    try:
        yield
    finally:
        _is_offered = before


class WriteThroughSide:
    """What a connection does for one response.

    Args:
        write: takes bytes that reach the client.
        can_write: whether the connection would take some now.
    """

    def __init__(self, write: Callable[[bytes], None], can_write: Callable[[], bool]) -> None:
        self._write, self._can_write = write, can_write
        self._partial, self._sent = b"", 0
        self._parts = 0
        self.is_open = False  # the response has begun and has not ended

    def offer(self, scope: dict[str, Any]) -> None:
        """Add the extension to the scope of a request, if clients in memory are to offer it."""
        if _is_offered:
            scope["extensions"] = {EXTENSION: self}

    def try_send(self, data: bytes) -> bool:
        """Take a part of the body."""
        if not self.is_open or not self._can_write():
            return False
        assert not self._partial, "the part that was taken in part must be sent first, and alone"
        self._parts += 1
        if self._parts % PARTIAL_EVERY == 0:
            self._partial, self._sent = data, len(data) // 2
            self._write(data[: self._sent])
            return False
        self._write(data)
        return True

    def rest_of(self, data: bytes) -> bytes:
        """Return what an ordinary message still has to send of its data."""
        partial, sent = self._partial, self._sent
        self._partial, self._sent = b"", 0
        if not partial:
            return data
        assert data == partial, "not the part that was taken in part"
        return data[sent:]
