"""One connection: whatever comes in on it, or fails to go out, ends at most that connection.

Hypercorn's own ``TCPServer`` lets any exception of a connection reach the nursery of the server, and writes under
a shield that has no deadline. ``GuardedTCPServer`` keeps its place and its interface and changes those two things.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

from hermes_trio.server.faults import Faults, OnFault
from hermes_trio.server.protocols import Address, Wire
from hermes_trio.server.reading import GONE, Paused, until_gone
from hermes_trio.server.sockets import ensure_options

PIECE = 2**16
"""How much one write deadline covers: a reader that takes this much in time is slow, not stalled."""

BURST = 16
"""How many writes may go straight to the kernel before the other tasks get their turn."""

CLEANUP_SECONDS = 5.0
"""The bound on closing, which goes on in spite of cancellation."""

Bytes = bytes | memoryview


class Connections:
    """The connections that are open now; health checks and leak tests read its length."""

    def __init__(self) -> None:
        self._open: set[GuardedTCPServer] = set()
        self.write_limit = math.inf

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def holding(self, connection: GuardedTCPServer) -> Iterator[None]:
        """Count a connection for as long as the block runs."""
        self._open.add(connection)
        try:
            yield
        finally:
            self._open.discard(connection)

    def limit_writes(self, deadline: float) -> None:
        """Let no write, running or to come, outlast a point in time: a stalled reader cannot hold a shutdown."""
        self.write_limit = deadline
        for connection in self._open:
            connection.limit_write(deadline)


class Guards:
    """What the connections of a server share: the write deadline, the register and the account of faults."""

    def __init__(self, write_seconds: float = 30.0, on_fault: OnFault | None = None) -> None:
        self.write_seconds = write_seconds
        self.faults = Faults(on_fault)
        self.connections = Connections()

    def write_deadline(self) -> float:
        """When a write that begins now must be through."""
        return min(trio.current_time() + self.write_seconds, self.connections.write_limit)


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
        self._ended = False

    async def run(self) -> None:
        """Serve the connection to its end. Only cancellation, an interrupt or an exit goes further up."""
        with self.guards.connections.holding(self):
            try:
                await self._serve()
            except* GONE:
                pass
            except* (Exception, GeneratorExit) as group:  # noqa: BLE001 - nothing a client sends may go further
                self.guards.faults.record(group)

    async def _serve(self) -> None:
        try:
            alpn = await self._handshake()
            client, server = self._addresses()
        except (OSError, trio.TooSlowError):
            pass  # reset before we looked at it, or no handshake in time: not a fault of ours
        else:
            await self._converse(alpn, client, server)
        finally:
            with trio.move_on_after(CLEANUP_SECONDS, shield=True):
                await self._close()

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
        with trio.CancelScope() as scope:
            async with TaskGroup() as group:
                self._task_group = group
                state = ConnectionState(self.state)
                secure = self._plain is None
                parts = (
                    *(self.app, self.config, self.context, group, state),
                    *(secure, client, server, self.protocol_send),
                )
                self.protocol = Wire(parts, alpn, scope.cancel)  # type: ignore[assignment]
                await self.protocol.initiate()
                await self.idle_task.restart(group, self._idle_timeout)
                await self._read()
                await self._stop_the_clock()

    async def _read(self) -> None:
        """Read until the client or the connection is gone, wherever the reader is held up just then."""
        with self._reading:
            await self._read_data()
        if self._reading.cancelled_caught:
            await self.protocol.handle(Closed())

    async def _wait_out(self, paused: Paused) -> None:
        """The reader has to wait: let it go when the pause is over, and end it when the client leaves."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look_out, paused)
            await paused.over()
            nursery.cancel_scope.cancel()

    async def _look_out(self, paused: Paused) -> None:
        await until_gone(self.stream, self._socket, paused)
        self._reading.cancel()

    async def _stop_the_clock(self) -> None:
        """The client is gone: the timer of idle connections must not keep this one open, now or later."""
        self._ended = True
        await self.idle_task.stop()

    async def protocol_send(self, event: Event) -> None:
        """Take an event of the protocol: bytes to write, or news about the connection."""
        if isinstance(event, RawData):
            await self._write(event.data)
        elif isinstance(event, Paused):
            await self._wait_out(event)
        elif not (self._ended and isinstance(event, Updated)):
            await super().protocol_send(event)
            if isinstance(event, Closed):
                self._reading.cancel()  # only now: the reader itself may be the one that closes

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
