"""Hypercorn's HTTP/2, bounded in memory and in work.

A malformed or failed request costs its stream only, and a client that floods the connection with
cheap frames loses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import structlog
import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.events import StreamClosed
from hypercorn.protocol.h2 import (
    BUFFER_HIGH_WATER,
    BUFFER_LOW_WATER,
    BufferCompleteError,
    H2Protocol,
    StreamBuffer,
)
from priority.priority import DeadlockError

from hermes_trio.server.guards.http1 import finishing

log = structlog.get_logger(__name__)

WRITE_BYTES = 2**16
"""About how much is written in one piece: new data of other streams should not wait for more."""

FRAME_HEAD = 9
"""The length of a frame's header."""

SETTLE_SECONDS = 2.0
"""How long a client has to take what a failed application left in the buffer."""


READ_SLICE = 2**11
"""How many bytes are parsed at a time: about eighty of the smallest requests."""

WORK_PER_TURN = 64
"""How much is done for one connection before the other tasks get their turn, in frames."""

REQUEST_WORK = 8
"""What a new request counts as, in frames."""

RESETS_PER_SECOND = 20.0
CONTROL_FRAMES = 1_000
CONTROL_FRAMES_PER_SECOND = 200.0
CONTROL_FRAMES_PER_DATA_FRAME = 4
"""A client may answer each frame of data with a few window updates, pings or settings."""


class FloodBudget:
    """How often a client may do something that costs it less than the server.

    The budget starts full and is refilled over time. Times are those of a monotonic clock.
    """

    def __init__(self, capacity: float, per_second: float) -> None:
        self._capacity, self._per_second = capacity, per_second
        self._left = capacity
        self._counted_at = 0.0

    def spend(self, now: float) -> bool:
        """Count one use. Return whether the budget allowed it."""
        self.earn((now - self._counted_at) * self._per_second)
        self._counted_at = now
        self._left -= 1
        return self._left >= 0

    def earn(self, amount: float) -> None:
        """Refill the budget by some uses."""
        self._left = min(self._capacity, self._left + amount)


class BoundedStreamBuffer(StreamBuffer):
    """The unsent data of an HTTP/2 stream.

    A producer waits at the high-water mark until it is below the low one.

    Defect: `pop` wakes the producer whenever it *returned* little, nothing included, so a client
    that grants no window takes memory without bound; `drain` returns before END_STREAM is sent,
    which a shutdown then loses (no issue known). Delete when: `pop` looks at what is left, and
    `drain` waits for the end of the stream.
    """

    def __init__(self, event_class: Any) -> None:
        super().__init__(event_class)
        self._closed = trio.Event()

    @property
    def is_complete(self) -> bool:
        """Whether the application has sent the end of the response."""
        return self._complete

    async def push(self, data: bytes) -> None:
        """Add data, then wait while there is too much of it.

        Raises:
            BufferCompleteError: The stream is closed.
        """
        if self._complete:
            raise BufferCompleteError
        self.buffer.extend(data)
        await self._is_empty.clear()
        if len(self.buffer) >= BUFFER_HIGH_WATER and self._paused.is_set():
            await self._paused.clear()
        while len(self.buffer) >= BUFFER_HIGH_WATER and not self._complete:
            await self._paused.wait()

    async def pop(self, max_length: int) -> bytes:
        """Take the data of one frame."""
        data = bytes(self.buffer[:max_length])
        del self.buffer[:max_length]
        if len(self.buffer) < BUFFER_LOW_WATER:
            await self._paused.set()
        if not self.buffer:
            await self._is_empty.set()
        return data

    async def drain(self) -> None:
        """Wait until the data has been sent and, after the last of it, END_STREAM."""
        if self._complete:
            await self._closed.wait()
        else:
            await super().drain()

    async def close(self) -> None:
        """Drop the data and wake waiting tasks."""
        await super().close()
        self._closed.set()


# Frames that cost a client a few bytes and require no request to be open.
_CONTROL: Final = (
    h2.events.PingReceived,
    h2.events.RemoteSettingsChanged,
    h2.events.PriorityUpdated,
    h2.events.WindowUpdated,
    h2.events.UnknownFrameReceived,
)


class GuardedH2Protocol(H2Protocol):
    """HTTP/2 whose streams cannot hurt each other, and whose connections cannot hurt the server."""

    def __init__(self, *args: Any) -> None:
        """Do not offer WebSockets over HTTP/2 either."""
        super().__init__(*args)
        del self.connection.local_settings[h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL]
        # A proxy may lose all its clients at once, and the clients that replace them.
        self._resets = FloodBudget(2 * self.config.h2_max_concurrent_streams, RESETS_PER_SECOND)
        self._control_frames = FloodBudget(CONTROL_FRAMES, CONTROL_FRAMES_PER_SECOND)
        self._work = 0  # since other tasks had their turn

    async def initiate(
        self, headers: list[tuple[bytes, bytes]] | None = None, settings: bytes | None = None
    ) -> None:
        """Send the server's preface and start the idle timer.

        Defect: A preface in clear text looks like a request and stops the timer for good (no issue
        known). Delete when: `ProtocolWrapper` sends `Updated(idle=True)` after it.
        """
        await super().initiate(headers, settings)
        await self.send(Updated(idle=self.idle))

    async def handle(self, event: Event) -> None:
        """Take input, a slice at a time, or the end of the connection, which frees every producer that waits for window.

        Defect: Everything that one read returns is parsed and served in one step, which two
        thousand requests that are reset at once stretch to a second (CVE-2023-44487 as far as it
        concerns Hypercorn). Delete when: Hypercorn bounds the work per read and counts resets.
        """
        if isinstance(event, RawData):
            for start in range(0, len(event.data), READ_SLICE):
                if not self.closed:
                    await super().handle(RawData(event.data[start : start + READ_SLICE]))
            return
        if isinstance(event, Closed):
            for buffer in list(self.stream_buffers.values()):
                await buffer.close()
        await super().handle(event)

    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of a response.

        Its end is handled in spite of cancellation, see `finishing`.
        """
        if isinstance(event, StreamClosed):
            with finishing():
                await self._reset_incomplete(event.stream_id)
                await super().stream_send(event)
        else:
            await super().stream_send(event)
            if event.stream_id not in self.streams:  # as in HTTP/1.1
                await trio.lowlevel.checkpoint()

    async def _reset_incomplete(self, stream_id: int) -> None:
        """Reset a stream whose application stopped half way.

        Defect: Such a stream stays open, and its client waits forever (no issue known).
        Delete when: `H2Protocol` resets a stream that is closed before its end.
        """
        buffer = self.stream_buffers.get(stream_id)
        if not isinstance(buffer, BoundedStreamBuffer) or buffer.is_complete:
            return
        if buffer.buffer:
            with trio.move_on_after(SETTLE_SECONDS):
                await buffer.drain()
        with suppress(h2.exceptions.ProtocolError):
            self.connection.reset_stream(stream_id, h2.errors.ErrorCodes.INTERNAL_ERROR)
        await buffer.close()
        await self._flush()

    async def send_task(self) -> None:
        """Frame what the streams have to send, in the order of their priorities, and write it in one piece.

        Defect: Every frame is a write and a scheduler pass of its own, so the last of a hundred
        streams on one connection waits for a hundred of them; and a stream that is closed while it
        waits for its turn raises `KeyError` in the handler of that very error, which ends the
        connection (no issues known). Delete when: `H2Protocol.send_task` flushes once for all
        streams, and `_send_data` tolerates a missing buffer.
        """
        while not self.closed:
            framed, ended = 0, list[StreamBuffer]()
            while framed < WRITE_BYTES:
                try:
                    framed += await self._frame_data(next(self.priority), ended)
                except DeadlockError:
                    break
            if framed:
                await self._flush()
            else:
                await self.has_data.wait()
                await self.has_data.clear()
            for buffer in ended:  # only now: a task that waits in `drain` may close the connection
                await buffer.close()

    async def _frame_data(self, stream_id: int, ended: list[StreamBuffer]) -> int:
        """Frame what one stream may send now, with END_STREAM if it is the last.

        Return about how many bytes that is.
        """
        buffer, data = self.stream_buffers.get(stream_id), b""
        try:
            if buffer is None:
                raise h2.exceptions.StreamClosedError(stream_id)
            window = self.connection.local_flow_control_window(stream_id)
            data = await buffer.pop(max(0, min(window, self.connection.max_outbound_frame_size)))
            is_last = buffer.complete
            if data or is_last:
                self.connection.send_data(stream_id, data, end_stream=is_last)
                self._control_frames.earn(CONTROL_FRAMES_PER_DATA_FRAME)
            if not (data and buffer.buffer):  # until there is more data or more window
                self.priority.block(stream_id)
        except h2.exceptions.ProtocolError:
            is_last = True
        if is_last:
            self.stream_buffers.pop(stream_id, None)
            self.priority.remove_stream(stream_id)
            if buffer is not None:
                ended.append(buffer)
        return FRAME_HEAD + len(data) if data or is_last else 0

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        reset = {each.stream_id for each in events if isinstance(each, h2.events.StreamReset)}
        for event in events:
            if self.closed:
                return
            if not self._is_tolerable(event):
                await self._close_flood(event)
                return
            await self._handle_event(event, reset)
            self._work += REQUEST_WORK if isinstance(event, h2.events.RequestReceived) else 1
            if self._work >= WORK_PER_TURN:
                self._work = 0
                await trio.lowlevel.checkpoint()

    async def _handle_event(self, event: h2.events.Event, reset: set[int]) -> None:
        if isinstance(event, h2.events.DataReceived) and event.stream_id not in self.streams:
            await self._ignore_data(event)
        elif isinstance(event, h2.events.RequestReceived) and event.stream_id in reset:
            pass  # reset by its client already: nothing needs to know that it ever existed
        elif isinstance(event, h2.events.RequestReceived) and (
            status := refusal_status(event.headers)
        ):
            await self._refuse(event.stream_id, status)
        else:
            await super()._handle_events([event])
        if isinstance(event, h2.events.StreamReset):
            await self._free_producer(event.stream_id)

    def _is_tolerable(self, event: h2.events.Event) -> bool:
        """Count an event. Return whether the client has budget for it."""
        if isinstance(event, h2.events.StreamReset):
            return self._resets.spend(trio.current_time())
        is_empty = isinstance(event, h2.events.DataReceived) and not event.flow_controlled_length
        if is_empty or isinstance(event, _CONTROL):
            return self._control_frames.spend(trio.current_time())
        return True

    async def _close_flood(self, event: h2.events.Event) -> None:
        log.warning("http2_flood", frame=type(event).__name__)
        self.connection.close_connection(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
        await self._flush()
        await self.send(Closed())

    async def _ignore_data(self, event: h2.events.DataReceived) -> None:
        """Give the window back for data of a stream that is answered already.

        Defect: Data that follows an early answer (401, 413) raises `KeyError` and ends the process
        (hypercorn #329, PRs #312, #334). Delete when: one of those is released.
        """
        self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        await self._flush()

    async def _refuse(self, stream_id: int, status: int) -> None:
        """Answer a request that Hypercorn cannot represent.

        Defect: A path or method that is not ASCII, and CONNECT without a path, raise and end the
        process (no issue known). Delete when: `H2Protocol._create_stream` answers them.
        """
        headers = [(b":status", b"%d" % status), (b"content-length", b"0")]
        self.connection.send_headers(stream_id, headers, end_stream=True)
        await self._flush()

    async def _free_producer(self, stream_id: int) -> None:
        """Wake the producer of a stream that its client has reset, and let the idle timer start.

        Defect: The producer waits for window until the connection ends, and a connection whose
        streams were all reset is never idle (no issue known). Delete when: `H2Protocol` closes the
        buffer of a reset stream and sends `Updated`.
        """
        if (buffer := self.stream_buffers.get(stream_id)) is not None:
            await buffer.close()
        await self.send(Updated(idle=self.idle))

    async def _create_stream(self, request: h2.events.RequestReceived) -> None:
        """Start a request without counting it.

        Defect: After `keep_alive_max_requests` requests a GOAWAY cuts every open stream (no issue
        known). Delete when: Hypercorn lets open streams finish.
        """
        await super()._create_stream(request)
        self.keep_alive_requests = 0


def refusal_status(headers: Sequence[tuple[bytes, bytes]]) -> int | None:
    """Return the status for a request that must not reach Hypercorn, None for one that may."""
    pseudo = dict(headers)
    method, path = pseudo.get(b":method", b"\xff"), pseudo.get(b":path", b"\xff")
    if method.upper() == b"CONNECT":
        return 501
    return None if method.isascii() and path.isascii() else 400
