"""HTTP/2 as Hypercorn speaks it, bounded in memory.

A malformed request, a late packet or a failed application costs its stream, not the connection that others share.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import trio
from hypercorn.events import Closed, Event, Updated
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.events import Request, StreamClosed
from hypercorn.protocol.h2 import (
    BUFFER_HIGH_WATER,
    BUFFER_LOW_WATER,
    BufferCompleteError,
    H2Protocol,
    StreamBuffer,
)
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.trio.worker_context import EventWrapper
from hypercorn.utils import filter_pseudo_headers
from priority.priority import DeadlockError, DuplicateStreamError, MissingStreamError

from hermes_trio.core.wire import SEND_NOW, SEND_PART
from hermes_trio.server.sending import finishing, give_way, give_way_after_part

SETTLE_SECONDS = 2.0
"""How long a client has to take what a failed application left in the buffer."""

WRITE = 2**16
"""How much goes out in one write, about: whoever comes next should not wait for more."""

FRAME_HEAD = 9


class Flag(EventWrapper):
    """Hypercorn's event, which can also be set and cleared by those who are no coroutines."""

    def set_now(self) -> None:
        """Let all go on who wait."""
        self._event.set()

    def clear_now(self) -> None:
        """From now on they wait."""
        self._event = trio.Event()


class BoundedBuffer(StreamBuffer):
    """What a stream still has to send: a producer waits at the high water mark until it is below the low one.

    Hypercorn's own reopens the gate whenever it sent little, nothing included.
    """

    def __init__(self, event_class: Any) -> None:
        super().__init__(event_class)
        self._is_empty: Flag = Flag()

    @property
    def unfinished(self) -> bool:
        """Whether the end of the response is still to come."""
        return not self._complete

    async def settle(self) -> None:
        """Wait until what is in here has been sent."""
        if self.buffer:
            await self.drain()

    async def push(self, data: bytes) -> None:
        """Add data, and wait while there is too much of it."""
        self.put(data)
        if len(self.buffer) >= BUFFER_HIGH_WATER and self._paused.is_set():
            await self._paused.clear()
        while len(self.buffer) >= BUFFER_HIGH_WATER and not self._complete:
            await self._paused.wait()

    def put(self, data: bytes) -> bool:
        """Add data; whether nobody has to wait for it.

        Raises:
            BufferCompleteError: nothing more is taken.
        """
        if self._complete:
            raise BufferCompleteError
        self.buffer.extend(data)
        self._is_empty.clear_now()
        return len(self.buffer) < BUFFER_HIGH_WATER

    async def pop(self, max_length: int) -> bytes:
        """Take what fits into a frame."""
        data = bytes(self.buffer[:max_length])
        del self.buffer[:max_length]
        if len(self.buffer) < BUFFER_LOW_WATER:
            await self._paused.set()
        if not self.buffer:
            await self._is_empty.set()
        return data


def pseudo(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> str | None:
    """A pseudo header as text; None if it is absent or no ASCII."""
    value = dict(headers).get(name)
    return value.decode("ascii") if value is not None and value.isascii() else None


def refusal(headers: Sequence[tuple[bytes, bytes]]) -> int | None:
    """The status for a request that never reaches the application, or None for one that may."""
    if pseudo(headers, b":method") is None:
        return 400
    if dict(headers)[b":method"].upper() == b"CONNECT":
        return 501
    return 400 if pseudo(headers, b":path") is None else None


class BoundedH2(H2Protocol):
    """HTTP/2 whose streams are bounded in memory and cannot hurt each other."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.has_data: Flag = Flag()
        offered = {
            h2.settings.SettingCodes(code): value for code, value in self.connection.local_settings.items()
        }
        offered.pop(h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL, None)  # no WebSockets here either
        self.connection.local_settings = h2.settings.Settings(client=False, initial_values=offered)

    async def handle(self, event: Event) -> None:
        """Take bytes or the end of the connection; the end lets go of every producer that waits for window."""
        if isinstance(event, Closed):
            for buffer in list(self.stream_buffers.values()):
                await buffer.close()
        await super().handle(event)

    async def send_task(self) -> None:
        """Send what streams have, in the order of their priorities; Hypercorn's own makes a write of every frame."""
        while not self.closed:
            if await self._gather():
                await self._flush()
            else:
                await self.has_data.wait()
                await self.has_data.clear()

    async def _gather(self) -> bool:
        """Frame what waits, as much of it as goes out in one write; returns whether there was anything."""
        framed = 0
        while framed < WRITE:
            try:
                stream_id = next(self.priority)
            except DeadlockError:
                break
            framed += await self._frame(stream_id)
        return framed > 0

    async def _frame(self, stream_id: int) -> int:
        """Frame what one stream may send now; returns how many bytes that is, about."""
        try:
            return await self._frame_open(stream_id, self.stream_buffers[stream_id])
        except (KeyError, h2.exceptions.ProtocolError):  # it was closed while it waited for its turn
            await self._forget(stream_id)
            return 0

    async def _frame_open(self, stream_id: int, buffer: StreamBuffer) -> int:
        window = self.connection.local_flow_control_window(stream_id)
        data = await buffer.pop(max(0, min(window, self.connection.max_outbound_frame_size)))
        if buffer.complete:
            self.connection.send_data(stream_id, data, end_stream=True)
            await self._forget(stream_id)
            return FRAME_HEAD + len(data)
        if data:
            self.connection.send_data(stream_id, data)
        if not (data and buffer.buffer):  # until there is more, or more room
            self.priority.block(stream_id)
        return FRAME_HEAD + len(data) if data else 0

    async def _forget(self, stream_id: int) -> None:
        if (buffer := self.stream_buffers.pop(stream_id, None)) is not None:
            await buffer.close()
        self.priority.remove_stream(stream_id)

    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of a response. A live producer waits in the buffer, at the high water mark."""
        if isinstance(event, StreamClosed):
            with finishing():
                await self._cut_short(event.stream_id)
                await super().stream_send(event)
        else:
            await super().stream_send(event)
            await give_way(event, event.stream_id not in self.streams)

    async def send_part(self, stream_id: int, data: bytes) -> None:
        """Send a part of an answer, not the last one: what an application may do without ASGI."""
        with suppress(BufferCompleteError, KeyError, MissingStreamError):  # closed while it waited for room
            self.priority.unblock(stream_id)
            await self.has_data.set()
            await self.stream_buffers[stream_id].push(data)
        await give_way_after_part(stream_id not in self.streams)

    def _buffer(self, stream_id: int) -> BoundedBuffer:
        buffer = self.stream_buffers[stream_id]
        assert isinstance(buffer, BoundedBuffer)  # all are
        return buffer

    def send_now(self, stream_id: int, data: bytes) -> bool:
        """The same without waiting: whether there is room. If there is none, whoever sends the next part waits for it."""
        with suppress(BufferCompleteError, KeyError, MissingStreamError):  # its client is gone
            has_room: bool = self._buffer(stream_id).put(data)
            self.priority.unblock(stream_id)
            self.has_data.set_now()
            return has_room
        return False

    async def _cut_short(self, stream_id: int) -> None:
        """Reset a stream whose application stopped half way; else its client would wait for the rest."""
        buffer = self.stream_buffers.get(stream_id)
        if not isinstance(buffer, BoundedBuffer) or not buffer.unfinished:
            return
        with trio.move_on_after(SETTLE_SECONDS):
            await buffer.settle()
        with suppress(h2.exceptions.ProtocolError):
            self.connection.reset_stream(stream_id, h2.errors.ErrorCodes.INTERNAL_ERROR)
        await buffer.close()
        await self._flush()

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        for event in events:
            if isinstance(event, h2.events.DataReceived) and event.stream_id not in self.streams:
                await self._ignore_data(event)
            elif isinstance(event, h2.events.RequestReceived) and (status := refusal(event.headers)):
                await self._refuse(event.stream_id, status)
            else:
                await super()._handle_events([event])
            if isinstance(event, h2.events.StreamReset):
                await self._let_go(event.stream_id)

    async def _let_go(self, stream_id: int | None) -> None:
        """The client wants no more of a stream: its producer must not wait for a window that may never come."""
        if stream_id is not None and (buffer := self.stream_buffers.get(stream_id)) is not None:
            await buffer.close()
        await self.send(Updated(idle=self.idle))  # else a connection of reset streams never times out

    async def _ignore_data(self, event: h2.events.DataReceived) -> None:
        """Data for a stream that we have answered already: give the window back, for the other streams."""
        self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        await self._flush()

    async def _refuse(self, stream_id: int, status: int) -> None:
        headers = [(b":status", b"%d" % status), (b"content-length", b"0")]
        self.connection.send_headers(stream_id, headers, end_stream=True)
        await self._flush()

    async def _create_stream(self, request: h2.events.RequestReceived) -> None:
        """Start a request. Unlike the original it does not count them: a GOAWAY would cut every open stream."""
        number = request.stream_id
        self.streams[number] = HTTPStream(
            *(self.app, self.config, self.context, self.task_group, self.ssl),
            *(self.client, self.server, self.stream_send, number),
        )
        self.stream_buffers[number] = BoundedBuffer(self.context.event_class)
        self._enlist(number)
        await self.streams[number].handle(self._as_request(request))
        self._offer_parts(number)
        await self.context.mark_request()

    def _offer_parts(self, number: int) -> None:
        """The application, if this is one for it, has not had its turn yet. Of what answers HEAD, nothing is sent."""
        stream = self.streams.get(number)
        known: Any = {} if stream is None else stream.scope
        if known.get("method", "HEAD") != "HEAD":
            known[SEND_PART] = partial(self.send_part, number)
            known[SEND_NOW] = partial(self.send_now, number)

    def _as_request(self, request: h2.events.RequestReceived) -> Request:
        headers = dict(request.headers)
        return Request(
            stream_id=request.stream_id,
            headers=filter_pseudo_headers(request.headers),
            http_version="2",
            method=headers[b":method"].decode("ascii").upper(),
            raw_path=headers[b":path"],
            state=self.connection_state,
        )

    def _enlist(self, stream_id: int) -> None:
        try:
            self.priority.insert_stream(stream_id)
        except DuplicateStreamError:
            return  # its PRIORITY frame came before its headers
        self.priority.block(stream_id)
