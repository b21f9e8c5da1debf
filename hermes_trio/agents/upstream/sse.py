"""Server-sent events of a model's server: bytes in pieces of any size in, the data of whole events out. Pure."""

from __future__ import annotations

MAX_EVENT_BYTES = 8 * 1024 * 1024  # a tool call that writes a file may come in one event


class EventTooLong(Exception):
    """One event has more bytes than any model sends. The text is fit to be shown."""


class EventReader:
    """Reads one stream. Text is decoded when an event is whole, so a piece may end in the middle of a character."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._line = bytearray()  # the line that is not whole yet
        self._data: list[bytes] = []  # the lines of the event that is not whole yet
        self._size = 0

    def feed(self, piece: bytes) -> list[str]:
        """Take a piece; returns the data of the events that are whole now.

        Raises:
            EventTooLong: the server never ends an event.
        """
        self._line += piece
        if b"\n" not in piece and b"\r" not in piece:
            self._check(len(self._line))
            return []
        lines = bytes(self._line).splitlines(keepends=True)
        # A line that ends in a carriage return may still get its line feed.
        self._line = bytearray() if lines[-1].endswith(b"\n") else bytearray(lines.pop())
        events = [event for line in lines for event in self._take(line.rstrip(b"\r\n"))]
        self._check(len(self._line))
        return events

    def close(self) -> list[str]:
        """The stream is over; returns the last event if nobody ended it."""
        rest, self._line = bytes(self._line), bytearray()
        return [event for line in (rest.rstrip(b"\r"), b"") for event in self._take(line)]

    def _take(self, line: bytes) -> list[str]:
        if not line:
            return self._whole()
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(value)
            self._check(0)
        return []

    def _whole(self) -> list[str]:
        data, self._data, self._size = self._data, [], 0
        return [b"\n".join(data).decode("utf-8", "replace")] if data else []

    def _check(self, pending: int) -> None:
        if self._size + pending > self._limit:
            raise EventTooLong(f"one event has more than {self._limit} bytes")
