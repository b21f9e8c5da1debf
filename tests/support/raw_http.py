"""Low-level clients: HTTP/1.1 as bytes, HTTP/2 through the h2 library."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import h2.config
import h2.connection
import h2.events
import trio
from trio.abc import Stream

E = TypeVar("E", bound=h2.events.Event)

UPGRADE = (
    b"GET /socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def get(path: str, *headers: str) -> bytes:
    """Return the bytes of a GET request."""
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", "")).encode()


async def connect(port: int) -> trio.SocketStream:
    """Connect to a server on this machine."""
    return await trio.open_tcp_stream("127.0.0.1", port)


async def read_until(stream: Stream, marker: bytes) -> bytes:
    """Read up to and including the marker; fail at the end of the stream."""
    seen = b""
    while marker not in seen:
        data = await stream.receive_some(65536)
        assert data, f"the stream ended before {marker!r}, after {seen!r}"
        seen += data
    return seen


async def read_to_end(stream: Stream) -> bytes:
    """Read until the server closes or resets the connection."""
    seen = b""
    try:
        while data := await stream.receive_some(65536):
            seen += data
    except trio.BrokenResourceError:
        pass
    return seen


async def ask(port: int, request: bytes) -> bytes:
    """Send one request on a new connection, and return everything until the server closes it."""
    async with await connect(port) as stream:
        await stream.send_all(request)
        return await read_to_end(stream)


class H2Client:
    """One HTTP/2 connection.

    ``grant`` says whether it gives the server window for what it has read.
    """

    def __init__(self, stream: Stream, grant: bool = True) -> None:
        self.stream = stream
        self.grant = grant
        self.bodies: dict[int, bytes] = {}
        self.seen: list[h2.events.Event] = []
        config = h2.config.H2Configuration(
            client_side=True, validate_outbound_headers=False, normalize_outbound_headers=False
        )
        self.h2 = h2.connection.H2Connection(config=config)

    async def start(self) -> None:
        """Send the preface and the client's settings."""
        self.h2.initiate_connection()
        await self.flush()

    async def flush(self) -> None:
        """Send the library's pending output."""
        await self.stream.send_all(self.h2.data_to_send())

    async def request(self, path: bytes = b"/", method: bytes = b"GET", end: bool = True) -> int:
        """Open a stream and return its number."""
        head = [
            (b":method", method),
            (b":path", path),
            (b":scheme", b"http"),
            (b":authority", b"localhost"),
        ]
        return await self.send_head(head, end)

    async def send_head(self, head: list[tuple[bytes, bytes]], end: bool = True) -> int:
        """Open a stream with exactly these headers."""
        number = self.h2.get_next_available_stream_id()
        self.h2.send_headers(number, head, end_stream=end)
        await self.flush()
        return number

    async def receive(self) -> bool:
        """Take in one packet; False at the end of the connection."""
        data = await self.stream.receive_some(65536)
        for event in self.h2.receive_data(data):
            self._note(event)
        await self.flush()
        return bool(data)

    def _note(self, event: h2.events.Event) -> None:
        self.seen.append(event)
        if not isinstance(event, h2.events.DataReceived):
            return
        assert event.stream_id is not None
        self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + (event.data or b"")
        if self.grant and event.flow_controlled_length:
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)

    def find(self, kind: type[E], number: int) -> E | None:
        """Return the first event of a kind on a stream."""
        for event in self.seen:
            if isinstance(event, kind) and getattr(event, "stream_id", None) == number:
                return event
        return None

    async def until(self, kind: type[E], number: int) -> E:
        """Read until an event of a kind has come on a stream."""
        while (event := self.find(kind, number)) is None:
            assert await self.receive(), f"the connection ended before {kind.__name__}"
        return event

    async def until_body(self, number: int, wanted: Callable[[bytes], bool]) -> bytes:
        """Read until the body of a stream satisfies a condition."""
        while not wanted(self.bodies.get(number, b"")):
            assert await self.receive(), "the connection ended before the body was there"
        return self.bodies[number]

    async def status(self, number: int) -> int:
        """Return the status of a stream."""
        response = await self.until(h2.events.ResponseReceived, number)
        return int(dict(response.headers or [])[b":status"])

    async def answer(self, number: int) -> tuple[int, bytes]:
        """Return the status and the whole body of a stream."""
        await self.until(h2.events.StreamEnded, number)
        return await self.status(number), self.bodies.get(number, b"")


@asynccontextmanager
async def h2_client(port: int, grant: bool = True) -> AsyncIterator[H2Client]:
    """Open an HTTP/2 connection with prior knowledge on a clear-text port."""
    async with await connect(port) as stream:
        client = H2Client(stream, grant)
        await client.start()
        yield client
