"""The stream of one connection, with the deadlines and the orderly close that Hypercorn's Trio worker lacks."""

from __future__ import annotations

import fcntl
import math
import os
import select
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import trio
from attrs import frozen

WRITE_PIECE = 2**16
"""How many bytes one write deadline covers."""

READ_AHEAD = 2**16
"""How many bytes of later requests are kept while the protocol accepts no input."""

HANGUP_POLL_SECONDS = 0.5
"""How often a client with a full read-ahead buffer is checked for a hang-up."""

GONE_SECONDS = 2.0
"""How long requests and writes may go on after their client has gone."""

LINGER_SECONDS = 2.0
"""How long a client that is still sending has to read the answer."""

GONE = (trio.BrokenResourceError, trio.ClosedResourceError)

Transport = trio.SocketStream | trio.SSLStream[trio.SocketStream]


class WriteThroughError(RuntimeError):
    """The application did not repeat the data that `try_send` had written in part."""


@frozen
class PartialWrite:
    """A chunk of which the kernel took only the first `sent` bytes."""

    chunk: bytes
    sent: int


class GuardedStream(trio.abc.HalfCloseableStream):
    """An accepted connection as Hypercorn uses it.

    The stream knows how many requests its connection serves. `scope` surrounds all tasks of the
    connection and is cancelled as soon as the connection is over and the last request has ended.

    Args:
        stream: What the listener accepted.
        scope: Surrounds the tasks of the connection.
        write_deadline: Returns the deadline of a write that begins now.
    """

    def __init__(
        self, stream: Transport, scope: trio.CancelScope, write_deadline: Callable[[], float]
    ) -> None:
        self._stream, self._scope, self._write_deadline = stream, scope, write_deadline
        self._requests = 0
        self.uploads: set[object] = set()  # requests whose body has not been received completely
        self._writing: trio.CancelScope | None = None
        self._write_limit = math.inf
        self._partial_write: PartialWrite | None = None
        self._ahead = bytearray()
        self._is_client_gone = False
        self._is_closing = False
        self._lingers = False

    @property
    def _tcp(self) -> trio.SocketStream:
        return (
            self._stream.transport_stream
            if isinstance(self._stream, trio.SSLStream)
            else self._stream
        )

    @property
    def socket(self) -> trio.socket.SocketType:
        """The Trio socket of the connection."""
        return self._tcp.socket

    # Writing

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send, or give the client up when it does not take 64 KiB within the write deadline.

        Defect: `TCPServer.protocol_send` writes in a shielded scope without a deadline, so one
        client that stops reading blocks a graceful shutdown for as long as it stays connected (no
        issue known). Delete when: Hypercorn has a write timeout that also holds during a shutdown.

        Raises:
            trio.BrokenResourceError: The client is gone or does not read. The connection is closed.
            WriteThroughError: `try_write` sent a part of a chunk, and `data` is not that chunk. The
                connection is closed.
        """
        rest = memoryview(data)[await self._skip_written(data) :]
        rest = rest[self._write_nowait(rest) :]
        if not rest:
            await trio.lowlevel.cancel_shielded_checkpoint()  # as every write of Trio's own does
            return
        try:
            for start in range(0, len(rest), WRITE_PIECE):
                deadline = min(self._write_deadline(), self._write_limit)
                with trio.CancelScope(deadline=deadline) as self._writing:
                    await self._stream.send_all(rest[start : start + WRITE_PIECE])
                if self._writing.cancelled_caught:
                    await self.abort()
                    raise trio.BrokenResourceError("the client does not read")
        except trio.BrokenResourceError:
            self._client_left()
            raise
        finally:
            self._writing = None

    def _write_nowait(self, data: bytes | memoryview) -> int:
        """Write what the kernel takes at once; return how many bytes that is.

        Nearly always that is everything, and then the write needs no deadline.
        """
        if isinstance(self._stream, trio.SSLStream):
            return 0
        try:
            # The descriptor is looked up at every write: it is -1 once closed, so a reused one is
            # never hit.
            return os.write(self.socket.fileno(), data)
        except OSError:
            return 0  # the kernel is full or the client is gone: the ordinary way finds out which

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the kernel accepts data."""
        await self._stream.wait_send_all_might_not_block()

    def limit_write(self, deadline: float) -> None:
        """Let the write in progress, if any, end by `deadline`."""
        if self._writing is not None:
            self._writing.deadline = min(self._writing.deadline, deadline)

    def try_write(self, chunk: bytes) -> bool:
        """Write a chunk without blocking. Return True if the kernel took all of it.

        After False the caller must pass the very same chunk to `send_all` next, which skips what
        was written. To be called while no other task sends.
        """
        if self._partial_write is not None or self._is_closing:
            return False
        sent = self._write_nowait(chunk)
        if sent == len(chunk):
            return True
        if sent:
            self._partial_write = PartialWrite(chunk, sent)
        return False

    async def _skip_written(self, data: bytes | bytearray | memoryview) -> int:
        """Return how many bytes of `data` a partial write has sent already."""
        partial, self._partial_write = self._partial_write, None
        if partial is None:
            return 0
        if bytes(data[: len(partial.chunk)]) != partial.chunk:
            await self.abort()
            raise WriteThroughError(
                "data after a partial write must begin with the chunk that was written in part"
            )
        return partial.sent

    # Reading

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive, and note when the client is gone.

        Defect: The idle timer of `TCPServer` outlives a client that has left, and with it the
        connection's tasks and descriptor, for up to `keep_alive_timeout` (no issue known). Delete
        when: `TCPServer.run` stops the idle timer at the end of its read loop.
        """
        if self._ahead:
            data, self._ahead = self._ahead, bytearray()
            return data
        try:
            received = await self._stream.receive_some(max_bytes)
        except GONE:
            self._client_left()
            raise
        if not received or self._is_closing:
            self._client_left()
        if self._is_closing:  # the answer is out; what still arrives belongs to no request
            raise trio.ClosedResourceError
        return received

    async def wait_client_gone(self) -> None:
        """Return when the client has closed its sending side or is gone.

        Keep a bounded amount of what it sends.

        To be called while no other task receives. The next `receive_some` returns what was kept.
        """
        with suppress(*GONE):
            while (room := READ_AHEAD - len(self._ahead)) > 0:
                data = await self._stream.receive_some(room)
                if not data:
                    break
                self._ahead += data
            else:
                while not self._has_hung_up():  # noqa: ASYNC110 - unread data makes any wait for input return at once
                    await trio.sleep(HANGUP_POLL_SECONDS)
        self._client_left()

    def _has_hung_up(self) -> bool:
        """Check for an end of input or a reset, also behind unread data."""
        if self.socket.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self.socket.fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

    def _has_unread(self) -> bool:
        descriptor = self.socket.fileno()
        return descriptor >= 0 and any(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))

    # Requests

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request while the block runs."""
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
            if self._is_client_gone or self._is_closing:
                self._end()

    # Closing

    def _client_left(self) -> None:
        self._is_client_gone = True
        self._end()

    def _end(self) -> None:
        """Cancel the tasks of the connection with its last request, `GONE_SECONDS` after its client has gone at the latest.

        Defect: `H11Protocol` waits forever in `can_read` when bytes follow the last request of a
        connection, and forever to tell an application that does not receive of the disconnect (no
        issue known). Delete when: no task of `TCPServer` outlives its connection.
        """
        if self._requests == 0:
            self._scope.cancel(reason="the connection is closed")
        elif self._is_client_gone:
            deadline = min(self._scope.deadline, trio.current_time() + GONE_SECONDS)
            self._scope.deadline = self._write_limit = deadline
            self.limit_write(deadline)

    async def send_eof(self) -> None:
        """Send the end of the output. Decides whether `aclose` has to linger.

        Hypercorn calls it before `aclose` when it closes after an answer, but not when it closes an
        idle connection. TLS over HTTP has no half-close: the end is that of the TCP connection.
        """
        if self._is_closing:
            return
        self._lingers = not self._is_client_gone and (
            self._requests == 0 or bool(self.uploads) or self._has_unread()
        )
        if self._lingers or not isinstance(self._stream, trio.SSLStream):
            await self._tcp.send_eof()

    async def aclose(self) -> None:
        """Close, unless the client may still be sending: then `finish` closes.

        Defect: A socket that is closed with unread input is reset, and the reset overtakes the
        answer: a client that sends too much sees a broken connection instead of its 413, 431 or 401
        (hypercorn #329, PRs #312, #334). Delete when: Hypercorn lingers.
        """
        self._is_closing = True
        try:
            if not self._lingers:
                await self._stream.aclose()
        finally:
            self._end()

    async def abort(self) -> None:
        """Close at once. Tasks that read or write are woken with an exception."""
        self._is_closing = True
        await trio.aclose_forcefully(self._stream)

    async def finish(self) -> None:
        """Close for good, after a lingering client has stopped sending or `LINGER_SECONDS` have passed."""
        if self.socket.fileno() < 0:
            return
        try:
            if self._lingers:
                with trio.move_on_after(LINGER_SECONDS), suppress(*GONE):
                    while await self._tcp.receive_some(READ_AHEAD):
                        pass
        finally:
            await trio.aclose_forcefully(self._stream)  # noqa: ASYNC102 - does not block


class GuardedTLSStream(GuardedStream):
    """A `GuardedStream` with the methods by which Hypercorn recognises TLS."""

    _stream: trio.SSLStream[trio.SocketStream]

    @property
    def transport_stream(self) -> trio.SocketStream:
        """The TCP stream below."""
        return self._stream.transport_stream

    async def do_handshake(self) -> None:
        """Perform the TLS handshake."""
        await self._stream.do_handshake()

    def selected_alpn_protocol(self) -> str | None:
        """Return what ALPN chose."""
        chosen: str | None = self._stream.selected_alpn_protocol()
        return chosen


def guard_stream(
    stream: Transport, scope: trio.CancelScope, write_deadline: Callable[[], float]
) -> GuardedStream:
    """Wrap what a listener accepted."""
    kind = GuardedTLSStream if isinstance(stream, trio.SSLStream) else GuardedStream
    return kind(stream, scope, write_deadline)
