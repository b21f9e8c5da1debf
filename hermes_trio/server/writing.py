"""The way out of a connection: straight to the kernel, and by Trio's way, with a deadline, for what it does not take."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import trio

from hermes_trio.server.keeping import Guards
from hermes_trio.server.plain_socket import PlainSocket
from hermes_trio.server.reading import GONE

PIECE = 2**16
"""How much one write deadline covers: a reader that takes this much in time is slow, not stalled."""

BURST = 16
"""How many writes may go straight to the kernel before the other tasks get their turn."""

Bytes = bytes | memoryview
WriteNow = Callable[[bytes], Bytes]
"""Takes what can go out at once, and returns the rest."""


class Line(Protocol):
    """A connection, for a protocol that has no need of events to say what it wants."""

    write_now: WriteNow

    async def write(self, data: bytes) -> None:
        """Write all of the data, or end the connection."""
        ...

    def rest(self, is_idle: bool) -> None:
        """Note whether the connection waits for a request."""
        ...


class Outlet:
    """Of one connection."""

    def __init__(self, stream: trio.abc.Stream, guards: Guards) -> None:
        self._stream, self._guards = stream, guards
        self._plain = stream if isinstance(stream, PlainSocket) else None
        self._queued = 0  # those who write by Trio's way, or wait to
        self._writing: trio.CancelScope | None = None
        self._burst = 0

    @cached_property
    def _lock(self) -> trio.Lock:
        return trio.Lock()  # it is large, and most connections never wait

    async def write(self, data: bytes) -> bool:
        """Write all of the data; False when the client is gone or stalls. Cancellation waits.

        The protocol has counted the data as sent already: half a chunk, or an HTTP/2 header block that never left,
        would spoil all that follows. A cancelled producer hears of it from the protocol, once its data is out.
        """
        rest = self.write_now(data)
        if rest and not await self._write_rest(rest):
            return False
        self._burst += 1
        if self._burst >= BURST:
            await self._breathe()
        return True

    def write_now(self, data: bytes) -> Bytes:
        """Give the kernel what it takes without waiting, and return what is left: all of it, if others write already.

        The descriptor is asked for each time: it is -1 once closed, so a reused number cannot be hit. Real trouble is
        left to Trio's own send, which meets it again.
        """
        if self._plain is None or self._queued:
            return data
        try:
            sent = os.write(self._plain.socket.fileno(), data)
        except OSError:
            return data
        return memoryview(data)[sent:] if sent < len(data) else b""

    async def _write_rest(self, data: Bytes) -> bool:
        """Wait for the kernel to take the data; False when the client is gone or stalls."""
        self._queued += 1
        await self._acquire()
        try:
            return await self._write_pieces(memoryview(data))
        except GONE:
            return False
        finally:
            self._writing = None
            self._queued -= 1
            self._lock.release()

    async def _acquire(self) -> None:
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            with trio.CancelScope(shield=True):  # bounded: whoever holds the lock has a deadline
                await self._lock.acquire()

    async def _write_pieces(self, data: memoryview) -> bool:
        deadline = self._guards.write_deadline()
        for start in range(0, len(data), PIECE):
            if trio.current_effective_deadline() != -math.inf:  # once cancelled, the last deadline stands
                deadline = self._guards.write_deadline()
            with trio.CancelScope(shield=True, deadline=deadline) as self._writing:
                await self._stream.send_all(data[start : start + PIECE])
            if self._writing.cancelled_caught:
                return False
        return True

    def limit(self, deadline: float) -> None:
        """Let the write that is under way, if any, end by a point in time."""
        if self._writing is not None:
            self._writing.deadline = min(self._writing.deadline, deadline)

    async def _breathe(self) -> None:
        """Give the other tasks a turn, every few writes: on the short way a producer would never stop for them."""
        self._burst = 0
        await trio.lowlevel.cancel_shielded_checkpoint()
