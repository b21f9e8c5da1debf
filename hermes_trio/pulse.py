"""One timer for all streams: whoever has been silent for too long is told so.

A timer for each would cost every stream a cancel scope around every wait, and most waits are short.
"""

from __future__ import annotations

from typing import Protocol

import trio


class Stream(Protocol):
    """Somebody whose client must hear something now and then."""

    def silent(self) -> None:
        """It is time to say something."""
        ...


class Pulse:
    """All wait for the same time, so the one that spoke first is the first to be told."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._spoke: dict[Stream, float] = {}  # when, in that order
        self._has_streams = trio.Event()
        self._clock: trio.abc.Clock | None = None  # known, it is quicker to ask

    def __len__(self) -> int:
        """How many streams there are."""
        return len(self._spoke)

    def add(self, stream: Stream) -> None:
        """A stream has begun."""
        if self._clock is None:
            self._clock = trio.lowlevel.current_clock()
        self._spoke[stream] = self._clock.current_time()
        self._has_streams.set()

    def remove(self, stream: Stream) -> None:
        """A stream is over."""
        del self._spoke[stream]

    def beat(self, stream: Stream) -> None:
        """A stream has said something just now."""
        assert self._clock is not None  # since it was added
        del self._spoke[stream]
        self._spoke[stream] = self._clock.current_time()

    async def run(self) -> None:
        """Keep the time."""
        while True:
            while not self._spoke:
                self._has_streams = trio.Event()
                await self._has_streams.wait()
            await trio.sleep_until(self._due)
            while self._spoke and self._due <= trio.current_time():
                self._tell(next(iter(self._spoke)))

    @property
    def _due(self) -> float:
        return next(iter(self._spoke.values())) + self._seconds

    def _tell(self, stream: Stream) -> None:
        self.beat(stream)
        stream.silent()
