"""Connections without sockets: bytes to send, and turns that end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from attrs import Factory, define, field

from benchmarks.client import http1, http2
from benchmarks.client.orders import Order
from benchmarks.client.tokens import Meter, Turn

STREAMS_PER_CONNECTION = 100  # what servers allow by default


class Link(Protocol):
    """One connection."""

    unsent: bytes

    @property
    def has_room(self) -> bool:
        """Whether another turn may be started."""
        ...

    def start(self, turn: Turn) -> None:
        """Ask for a turn."""
        ...

    def feed(self, data: bytes, now: int) -> list[Turn]:
        """Take what came; returns the turns that are over."""
        ...

    def cut(self, now: int) -> list[Turn]:
        """The connection is over; returns the turns that are over with it."""
        ...


def new_link(order: Order, meter: Meter) -> Link:
    """Return a connection of the requested kind."""
    return Http2Link(order, meter) if order.http2 else Http1Link(order, meter)


@define
class Http1Link:
    """A connection with one turn after the other."""

    order: Order
    meter: Meter
    unsent: bytes = b""
    _turns: list[Turn] = Factory(list)  # none or one
    _reader: http1.Http1Reader = Factory(http1.Http1Reader)

    @property
    def has_room(self) -> bool:
        """Whether another turn may be started."""
        return not self._turns

    def start(self, turn: Turn) -> None:
        """Ask for a turn."""
        self._reader.restart()
        self._turns = [turn]
        self.unsent += http1.request_bytes(self.order.request_for(turn.number), self.order.host)

    def feed(self, data: bytes, now: int) -> list[Turn]:
        """Take what came."""
        if not self._turns:
            return []
        turn = self._turns[0]
        if body := self._reader.feed(data):
            self.meter.take(turn, body, now)
        turn.status = self._reader.status
        return self._end(now, True) if self._reader.is_over else []

    def cut(self, now: int) -> list[Turn]:
        """The connection is over."""
        return self._end(now, False)

    def _end(self, now: int, is_whole: bool) -> list[Turn]:
        ended, self._turns = self._turns, []
        for turn in ended:
            self.meter.finish(turn, now, is_whole)
        return ended


@define
class Http2Link:
    """A connection with many turns at once."""

    order: Order
    meter: Meter
    unsent: bytes = field(factory=http2.opening)
    _turns: dict[int, Turn] = Factory(dict)
    _next: int = 1
    _reader: http2.Http2Reader = Factory(http2.Http2Reader)

    @property
    def has_room(self) -> bool:
        """Whether another turn may be started."""
        return len(self._turns) < STREAMS_PER_CONNECTION

    def start(self, turn: Turn) -> None:
        """Ask for a turn."""
        self._turns[self._next] = turn
        self.unsent += http2.request_bytes(
            self.order.request_for(turn.number), self.order.host, self._next
        )
        self._next += 2

    def feed(self, data: bytes, now: int) -> list[Turn]:
        """Take what came."""
        return [turn for frame in self._reader.feed(data) for turn in self._take(frame, now)]

    def _take(self, frame: http2.Frame, now: int) -> Iterator[Turn]:
        self.unsent += http2.answer_to(frame)
        turn = self._turns.get(frame.stream)
        if turn is None:
            return
        if frame.kind == http2.DATA:
            self.meter.take(turn, frame.payload, now)
        elif frame.kind == http2.HEADERS and not turn.status:
            turn.status = http2.status_of(frame)
        if frame.ends_stream or frame.kind == http2.RST_STREAM:
            self.meter.finish(turn, now, frame.ends_stream)
            yield self._turns.pop(frame.stream)

    def cut(self, now: int) -> list[Turn]:
        """The connection is over."""
        ended, self._turns = list(self._turns.values()), {}
        for turn in ended:
            self.meter.finish(turn, now, False)
        return ended
