"""One connection: whatever comes in on it, or fails to go out, ends at most that connection.

Hypercorn's own ``TCPServer`` lets any exception of a connection reach the nursery of the server, and writes under
a shield that has no deadline. ``GuardedTCPServer`` keeps its place and its interface and changes those two things. It
also needs fewer tasks: an idle connection ends by a deadline of its reader, not by a task that waits.
"""

from __future__ import annotations

import math
from typing import Any

import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.tcp_server import MAX_RECV, TCPServer
from hypercorn.utils import parse_socket_addr

from hermes_trio.server.alone import Alone
from hermes_trio.server.applications import Applications
from hermes_trio.server.keeping import Guards, Keepers
from hermes_trio.server.parting import hang_up, has_unread, let_read
from hermes_trio.server.plain_socket import Address, Ends, PlainSocket, Socket, close, own_address
from hermes_trio.server.protocols import Wire
from hermes_trio.server.reading import GONE, Paused, receive, until_gone
from hermes_trio.server.sockets import ensure_options
from hermes_trio.server.writing import Outlet, WriteNow

CLEANUP_SECONDS = 5.0
"""The bound on closing, which goes on in spite of cancellation."""


def _plain(stream: object) -> PlainSocket | None:
    """A connection without TLS, whether it came through a door of ours or one of Hypercorn's."""
    if isinstance(stream, PlainSocket):
        return stream
    return PlainSocket(stream.socket, None, stream) if isinstance(stream, trio.SocketStream) else None


class GuardedTCPServer(TCPServer):
    """Hypercorn's connection handler with a guard around it, a deadline on writes and a short way to the kernel."""

    def __init__(self, guards: Guards, *parts: Any) -> None:
        """Take the guards, and then what Hypercorn passes; its lock and its task for the idle are not needed."""
        self.app, self.config, self.context, self.state, stream = parts
        self.guards = guards
        self._plain = _plain(stream)
        self.stream = self._plain or stream  # type: ignore[assignment]  # Hypercorn's type says TLS only
        self._outlet = Outlet(self.stream, guards)
        self.write_now: WriteNow = self._outlet.write_now
        self._applications = Applications()
        self._reading: trio.CancelScope | None = None  # beside an application
        self._rest_ends = math.inf
        self._is_idle = True
        self._is_parting = False
        self._wire: Wire
        self._alone: Alone
        self._keepers: Keepers

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
            self._alone.let_go()
            del self._wire, self._alone, self.protocol

    async def _serve(self) -> None:
        try:
            alpn = "http/1.1" if self._plain is not None else await self._handshake()
            client, server = self._addresses()
        except (OSError, trio.TooSlowError):
            pass  # reset before we looked at it, or no handshake in time: not a fault of ours
        else:
            self._begin(alpn, client, server)
            if self._plain is not None and not self.config.read_timeout:
                await self._alone.run()
            if not self._alone.is_over:
                await self._converse()
            if self._is_parting and self._plain is not None:
                await let_read(self._plain)
        finally:
            await self._close()  # noqa: ASYNC102 - it bounds itself

    async def _close(self) -> None:
        """Close in spite of cancellation: at once, or with a farewell of TLS that has a deadline."""
        if self._plain is not None:
            close(self._plain.socket)
            return
        try:
            with trio.move_on_after(CLEANUP_SECONDS, shield=True):
                await super()._close()
        finally:
            self._socket.close()

    async def _handshake(self) -> str | None:
        with trio.fail_after(self.config.ssl_handshake_timeout):
            await self.stream.do_handshake()
        alpn: str | None = self.stream.selected_alpn_protocol()
        return alpn

    @property
    def _socket(self) -> Socket:
        return (self._plain or self.stream.transport_stream).socket

    def _addresses(self) -> Ends:
        if self._plain is not None and self._plain.ends is not None:
            client, server = self._plain.ends
            return client, server or own_address(self._plain.socket)
        sock, family = self._socket, self._socket.family  # which is no cheap question
        ensure_options(sock, family)
        return parse_socket_addr(family, sock.getpeername()), parse_socket_addr(family, sock.getsockname())

    def _begin(self, alpn: str | None, client: Address, server: Address) -> None:
        terminated: Any = self.context.terminated  # declared as any event
        self._keepers = self.guards.begin(terminated, self.config.keep_alive_timeout)
        parts = (
            *(self.app, self.config, self.context, self._applications, self.state),
            *(self._plain is None, client, server, self.protocol_send),
        )
        self._wire = Wire(parts, alpn, self._applications.abandon, self)
        self.protocol = self._wire  # type: ignore[assignment]  # it has the same interface
        self._alone = Alone(self._socket, self._wire, self._applications, self._keepers)
        self._rest_ends = self._end_of_rest()

    async def _converse(self) -> None:
        """Read in this task, and have each application answer in one of its own."""
        async with self._applications:
            await self._wire.initiate()
            await self._read()

    async def _read(self) -> None:
        """Read until the client or the connection is gone, wherever the reader is held up just then."""
        self._reading = trio.CancelScope(deadline=self._rest_ends)
        self._end_if_terminated()
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
        if self._alone.ahead:
            data, self._alone.ahead = self._alone.ahead, b""
            return data
        if self._plain is None:
            return bytes(await self.stream.receive_some(MAX_RECV))
        return await receive(self._plain.socket, MAX_RECV)

    def rest(self, is_idle: bool) -> None:
        """Note whether the connection waits for a request; it waits so long and no longer, and not while we end."""
        self._is_idle = is_idle
        if is_idle:
            self._alone.answered()
        self._rest_ends = self._end_of_rest() if is_idle else math.inf
        if self._reading is not None:
            self._reading.deadline = self._rest_ends
            self._end_if_terminated()

    def _end_of_rest(self) -> float:
        return self._keepers.clock.current_time() + self.config.keep_alive_timeout

    def _end_if_terminated(self) -> None:
        if self.context.terminated.is_set():
            self.close_if_idle()

    def close_if_idle(self) -> None:
        """End a connection that waits for a request; one that is still shaking hands looks for itself."""
        if self._reading is not None:
            if self._is_idle:
                self._reading.cancel()
        elif hasattr(self, "_alone"):
            self._alone.close_if_waiting()

    async def _wait_out(self, paused: Paused) -> None:
        """The reader has to wait: let it go when the pause is over, and end it when the client leaves."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look_out, paused)
            await paused.over()
            nursery.cancel_scope.cancel()

    async def _look_out(self, paused: Paused) -> None:
        await until_gone(self.stream, self._socket, paused)
        self._end_reading()

    async def protocol_send(self, event: Event) -> None:
        """Take an event of the protocol: bytes to write, or news about the connection."""
        if isinstance(event, RawData):
            await self.write(event.data)
        elif isinstance(event, Paused):
            await self._wait_out(event)
        elif isinstance(event, Updated):
            self.rest(event.idle)
        elif isinstance(event, Closed):
            await self._part()
            await self.protocol.handle(event)
            self._end_reading()  # only now: the reader itself may be the one that closes

    async def write(self, data: bytes) -> None:
        """Write all of the data; a client that does not take it is gone, and the connection ends."""
        if not await self._outlet.write(data):
            await self._drop()

    async def _part(self) -> None:
        """Our last word is said. A client that is still speaking would lose it if we closed: then that comes later."""
        self._is_parting = self._plain is not None and (self._wire.is_unheard or has_unread(self._socket))
        if self._is_parting:
            hang_up(self._socket)
        else:
            await self._close()

    def limit_write(self, deadline: float) -> None:
        """Let the write that is under way, if any, end by a point in time."""
        self._outlet.limit(deadline)

    async def _drop(self) -> None:
        """Close at once, say so to the protocol, and then to the reader, which may be this very task."""
        await trio.aclose_forcefully(self.stream)
        await self.protocol.handle(Closed())
        self._end_reading()

    def _end_reading(self) -> None:
        self._alone.is_over = True
        if self._reading is not None:
            self._reading.cancel()
