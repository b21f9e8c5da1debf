"""Connections of a client that can leave in every way there is.

HTTP/1.1 as text, HTTP/2 through the h2 library.
"""

from __future__ import annotations

import ctypes
import json
import socket
import struct
from typing import Any, Protocol

import h2.events
import trio
from attrs import frozen
from h2.errors import ErrorCodes

from tests.crash.frames import parse_answer
from tests.support.raw_http import H2Client
from tests.support.server_process import ServerProcess

Json = dict[str, Any]
PIECE = 65536
_SO_ATTACH_FILTER = 26
_DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)  # one instruction of a packet filter: keep nothing


class ConnectionEnded(Exception):
    """The server ended the connection."""


@frozen
class Target:
    """Where a server is, and the key to it."""

    port: int
    key: str

    @staticmethod
    def of(server: ServerProcess) -> Target:
        """Of a server that was started."""
        return Target(server.port, server.key)

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries."""
        return {"authorization": f"Bearer {self.key}", "content-type": "application/json"}


@frozen
class ClientRequest:
    """A request."""

    method: str
    path: str
    body: Json | None = None

    @property
    def content(self) -> bytes:
        """Its body."""
        return b"" if self.body is None else json.dumps(self.body).encode()


class ClientConnection(Protocol):
    """One connection, and the answer to the last request on it."""

    stream: trio.SocketStream

    async def ask(self, ask: ClientRequest, part: float = 1.0) -> None:
        """Send a request, or only the first part of its bytes."""

    async def receive(self) -> int:
        """Take in some bytes and say how many.

        Raises:
            Ended: there will be no more.
        """

    @property
    def is_whole(self) -> bool:
        """Whether the answer is complete."""

    @property
    def status(self) -> int:
        """Of the answer; 0 if not even that came."""

    @property
    def body(self) -> bytes:
        """What has come of its body."""


class Http1Connection:
    """HTTP/1.1."""

    def __init__(self, stream: trio.SocketStream, target: Target) -> None:
        self.stream, self._target = stream, target
        self.raw = b""

    async def ask(self, ask: ClientRequest, part: float = 1.0) -> None:
        """Send a request."""
        self.raw = b""
        data = request_bytes(ask, self._target)
        await self.stream.send_all(data[: max(1, int(part * len(data)))])

    async def receive(self) -> int:
        """Take in what there is."""
        data = await self.stream.receive_some(PIECE)
        if not data:
            raise ConnectionEnded
        self.raw += data
        return len(data)

    @property
    def is_whole(self) -> bool:
        answer = parse_answer(self.raw)
        return answer is not None and answer.is_whole

    @property
    def status(self) -> int:
        answer = parse_answer(self.raw)
        return answer.status if answer is not None else 0

    @property
    def body(self) -> bytes:
        answer = parse_answer(self.raw)
        return answer.body if answer is not None else b""


def request_bytes(ask: ClientRequest, target: Target) -> bytes:
    """A request as it stands on the wire of HTTP/1.1."""
    headers = {"host": "localhost", **target.headers, "content-length": str(len(ask.content))}
    lines = [
        f"{ask.method} {ask.path} HTTP/1.1",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + ask.content


class Http2Connection:
    """HTTP/2 with prior knowledge."""

    def __init__(self, stream: trio.SocketStream, target: Target) -> None:
        self.stream, self._target = stream, target
        self.client = H2Client(stream)
        self.number = 0

    async def ask(self, ask: ClientRequest, part: float = 1.0) -> None:
        """Send a request; the first also opens the conversation."""
        line = self.client.h2
        if not self.number:
            line.initiate_connection()
        head = {
            ":method": ask.method,
            ":path": ask.path,
            ":scheme": "http",
            ":authority": "localhost",
        }
        fields = [
            (name.encode(), value.encode()) for name, value in (head | self._target.headers).items()
        ]
        self.number = line.get_next_available_stream_id()
        line.send_headers(self.number, fields, end_stream=not ask.content)
        if ask.content:
            line.send_data(self.number, ask.content, end_stream=True)
        data = line.data_to_send()
        await self.stream.send_all(data[: max(1, int(part * len(data)))])

    async def receive(self) -> int:
        """Take in what there is, and give the server room for more."""
        before = len(self.client.bodies.get(self.number, b""))
        if not await self.client.receive():
            raise ConnectionEnded
        return len(self.client.bodies.get(self.number, b"")) - before

    @property
    def is_whole(self) -> bool:
        return self.client.find(h2.events.StreamEnded, self.number) is not None

    @property
    def status(self) -> int:
        found = self.client.find(h2.events.ResponseReceived, self.number)
        return int(dict(found.headers or [])[b":status"]) if found is not None else 0

    @property
    def body(self) -> bytes:
        return self.client.bodies.get(self.number, b"")

    async def reset(self) -> None:
        """Have no more of this answer, but keep the connection."""
        if not self.is_whole:
            self.client.h2.reset_stream(self.number, ErrorCodes.CANCEL)
        await self.client.flush()

    async def say_goodbye(self) -> None:
        """Tell the server that the connection is over."""
        self.client.h2.close_connection()
        await self.client.flush()


async def whole(line: ClientConnection, ask: ClientRequest) -> Json:
    """A request whose answer comes in one piece.

    Raises:
        Ended: it does not come.
    """
    await line.ask(ask)
    while not line.is_whole:
        await line.receive()
    if line.status >= 300:
        raise ConnectionEnded(f"{ask.method} {ask.path}: {line.status} {line.body!r}")
    answer: Json = json.loads(line.body)
    return answer


def reset_on_close(sock: Any) -> None:
    """Let the end of a connection be a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def vanish(sock: Any) -> None:
    """From now on nothing reaches this socket, so nothing is acknowledged.

    As if a cable was pulled.
    """
    program = ctypes.create_string_buffer(_DROP_ALL)
    sock.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program))
    )
