"""One connection: whatever comes in on it, or fails to go out, ends at most that connection.

Hypercorn's own ``TCPServer`` lets any exception of a connection reach the nursery of the server, and writes under
a shield that has no deadline. ``GuardedTCPServer`` keeps its place and its interface and changes those two things. It
also needs fewer tasks: an idle connection ends by a deadline of its reader, not by a task that waits.
"""

from __future__ import annotations

import math
import os
from typing import Any

import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.tcp_server import MAX_RECV, TCPServer
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

from hermes_trio.server.applications import Applications
from hermes_trio.server.keeping import Guards
from hermes_trio.server.parting import hang_up, let_read
from hermes_trio.server.protocols import Address, Wire
from hermes_trio.server.reading import GONE, Paused, receive, until_gone
from hermes_trio.server.sockets import ensure_options

PIECE = 2**16
"""How much one write deadline covers: a reader that takes this much in time is slow, not stalled."""

BURST = 16
"""How many writes may go straight to the kernel before the other tasks get their turn."""

CLEANUP_SECONDS = 5.0
"""The bound on closing, which goes on in spite of cancellation."""

Bytes = bytes | memoryview


class GuardedTCPServer(TCPServer):
    """Hypercorn's connection handler with a guard around it, a deadline on writes and a short way to the kernel."""

    def __init__(self, guards: Guards, *parts: Any) -> None:
        """Take the guards, and then what Hypercorn passes: app, config, context, state and stream."""
        super().__init__(*parts)
        self.guards = guards
        stream: object = self.stream  # Hypercorn's type says TLS only
        self._plain = stream if isinstance(stream, trio.SocketStream) else None
        self._reading = trio.CancelScope()
        self._writing: trio.CancelScope | None = None
        self._burst = 0
        self._is_idle = True
        self._is_parting = False
        self._has_read = False
        self._wire: Wire

    async def run(self) -> None:
        """Serve the connection to its end. Only cancellation, an interrupt or an exit goes further up."""
        self.guards.connections.add(self)
        try:
            await self._serve()
        except* GONE:
            pass
        except* (Exception, GeneratorExit) as group:  # noqa: BLE001 - nothing a client sends may go further
            self.guards.faults.record(group)
        finally:
            self.guards.connections.discard(self)
            self._let_go()

    def _let_go(self) -> None:
        """Forget those who know us: a connection that is over must not be left to the collector."""
        if hasattr(self, "_wire"):  # it was not closed before it began
            self._wire.let_go()
            del self._wire, self.protocol

    async def _serve(self) -> None:
        try:
            alpn = await self._handshake()
            client, server = self._addresses()
        except (OSError, trio.TooSlowError):
            pass  # reset before we looked at it, or no handshake in time: not a fault of ours
        else:
            await self._converse(alpn, client, server)
            if self._is_parting and self._plain is not None:
                await let_read(self._plain)
        finally:
            await self._close()  # noqa: ASYNC102 - it bounds itself

    async def _close(self) -> None:
        """Close in spite of cancellation: at once, or with a farewell of TLS that has a deadline."""
        if self._plain is not None:
            self._plain.socket.close()
            return
        try:
            with trio.move_on_after(CLEANUP_SECONDS, shield=True):
                await super()._close()
        finally:
            self._socket.close()

    async def _handshake(self) -> str | None:
        if self._plain is not None:
            return "http/1.1"
        with trio.fail_after(self.config.ssl_handshake_timeout):
            await self.stream.do_handshake()
        alpn: str | None = self.stream.selected_alpn_protocol()
        return alpn

    @property
    def _socket(self) -> trio.socket.SocketType:
        return (self._plain or self.stream.transport_stream).socket

    def _addresses(self) -> tuple[Address, Address]:
        sock = self._socket
        ensure_options(sock)
        return (
            parse_socket_addr(sock.family, sock.getpeername()),
            parse_socket_addr(sock.family, sock.getsockname()),
        )

    async def _converse(self, alpn: str | None, client: Address, server: Address) -> None:
        self.guards.end_idle_with(self.context.terminated)  # type: ignore[arg-type]  # declared as any event
        async with Applications() as applications:
            state = ConnectionState(self.state)
            secure = self._plain is None
            parts = (
                *(self.app, self.config, self.context, applications, state),
                *(secure, client, server, self.protocol_send),
            )
            self._wire = Wire(parts, alpn, applications.abandon)
            self.protocol = self._wire  # type: ignore[assignment]  # it has the same interface
            await self._wire.initiate()
            self._rest(True)
            await self._read()

    async def _read(self) -> None:
        """Read until the client or the connection is gone, wherever the reader is held up just then."""
        with self._reading:
            await self._read_data()
        if self._reading.cancelled_caught:
            await self.protocol.handle(Closed())

    async def _read_data(self) -> None:
        if self.config.read_timeout:
            await super()._read_data()
            return
        while True:  # the same without a cancel scope for each piece
            try:
                data = await self._receive()
            except GONE:
                break
            await self.protocol.handle(RawData(data))
            if not data:
                break
        await self.protocol.handle(Closed())

    async def _receive(self) -> bytes:
        if self._plain is None:
            return bytes(await self.stream.receive_some(MAX_RECV))
        # Afterwards the client is silent for a while: to look would be in vain.
        looks_first, self._has_read = not self._has_read, True
        return await receive(self._plain.socket, MAX_RECV, looks_first)

    def _rest(self, is_idle: bool) -> None:
        """Note whether the connection waits for a request; it waits so long and no longer, and not while we end."""
        self._is_idle = is_idle
        rest = self.config.keep_alive_timeout if is_idle else math.inf
        self._reading.deadline = trio.current_time() + rest
        if self.context.terminated.is_set():
            self.close_if_idle()

    def close_if_idle(self) -> None:
        """End a connection that waits for a request."""
        if self._is_idle:
            self._reading.cancel()

    async def _wait_out(self, paused: Paused) -> None:
        """The reader has to wait: let it go when the pause is over, and end it when the client leaves."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look_out, paused)
            await paused.over()
            nursery.cancel_scope.cancel()

    async def _look_out(self, paused: Paused) -> None:
        await until_gone(self.stream, self._socket, paused)
        self._reading.cancel()

    async def protocol_send(self, event: Event) -> None:
        """Take an event of the protocol: bytes to write, or news about the connection."""
        if isinstance(event, RawData):
            await self._write(event.data)
        elif isinstance(event, Paused):
            await self._wait_out(event)
        elif isinstance(event, Updated):
            self._rest(event.idle)
        elif isinstance(event, Closed):
            await self._part()
            await self.protocol.handle(event)
            self._reading.cancel()  # only now: the reader itself may be the one that closes

    async def _part(self) -> None:
        """Our last word is said. A client that is still speaking would lose it if we closed: then that comes later."""
        self._is_parting = self._plain is not None and self._wire.is_unheard
        if self._is_parting:
            hang_up(self._socket)
        else:
            await self._close()

    async def _write(self, data: bytes) -> None:
        """Write all of the data, or close; cancellation waits.

        The protocol has counted the data as sent already: half a chunk, or an HTTP/2 header block that never left,
        would spoil all that follows. A cancelled producer hears of it from the protocol, once its data is out.
        """
        rest = data if self._plain is None or self.send_lock.locked() else self._write_now(data)
        if not rest or await self._write_rest(rest):
            await self._breathe()
        else:
            await self._drop()

    def _write_now(self, data: bytes) -> Bytes:
        """Give the kernel what it takes without waiting, and return what is left.

        The descriptor is asked for each time: it is -1 once closed, so a reused number cannot be hit. Real trouble is
        left to Trio's own send, which meets it again.
        """
        assert self._plain is not None
        try:
            sent = os.write(self._plain.socket.fileno(), data)
        except OSError:
            return data
        return memoryview(data)[sent:] if sent < len(data) else b""

    async def _write_rest(self, data: Bytes) -> bool:
        """Wait for the kernel to take the data; False when the client is gone or stalls."""
        await self._acquire()
        try:
            return await self._write_pieces(memoryview(data))
        except GONE:
            return False
        finally:
            self._writing = None
            self.send_lock.release()

    async def _acquire(self) -> None:
        try:
            self.send_lock.acquire_nowait()
        except trio.WouldBlock:
            with trio.CancelScope(shield=True):  # bounded: whoever holds the lock has a deadline
                await self.send_lock.acquire()

    async def _write_pieces(self, data: memoryview) -> bool:
        deadline = self.guards.write_deadline()
        for start in range(0, len(data), PIECE):
            if trio.current_effective_deadline() != -math.inf:  # once cancelled, the last deadline stands
                deadline = self.guards.write_deadline()
            with trio.CancelScope(shield=True, deadline=deadline) as self._writing:
                await self.stream.send_all(data[start : start + PIECE])
            if self._writing.cancelled_caught:
                return False
        return True

    def limit_write(self, deadline: float) -> None:
        """Let the write that is under way, if any, end by a point in time."""
        if self._writing is not None:
            self._writing.deadline = min(self._writing.deadline, deadline)

    async def _breathe(self) -> None:
        """Give the other tasks a turn, every few writes: on the short way a producer would never stop for them."""
        self._burst += 1
        if self._burst >= BURST:
            self._burst = 0
            await trio.lowlevel.cancel_shielded_checkpoint()

    async def _drop(self) -> None:
        """Close at once, say so to the protocol, and then to the reader, which may be this very task."""
        await trio.aclose_forcefully(self.stream)
        await self.protocol.handle(Closed())
        self._reading.cancel()
