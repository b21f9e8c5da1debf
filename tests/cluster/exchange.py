"""A raw HTTP/1.1 client for nodes: one request per connection, read packet by packet."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio
from attrs import define, field, frozen

from benchmarks.client.http1 import HEAD_END, Http1Reader
from tests.support.server_process import TIMEOUT, ServerProcess

JSON = {"Content-Type": "application/json"}
NO_HEADERS: Mapping[str, str] = {}


@frozen
class Address:
    """Where a node listens, and the key that all nodes share."""

    port: int
    key: str

    @staticmethod
    def of(server: ServerProcess) -> Address:
        """Return the address of a server that was started."""
        return Address(server.port, server.key)

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> bytes:
        """Return the bytes of a request."""
        content = b"" if body is None else json.dumps(body).encode()
        fields = {
            "Host": "localhost",
            "Authorization": f"Bearer {self.key}",
            "Content-Length": str(len(content)),
            "Connection": "close",
            **JSON,
            **headers,
        }
        lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items()), "", ""]
        return "\r\n".join(lines).encode() + content


@frozen
class Reply:
    """A response as far as it came. The status is 0 if nothing did."""

    status: int
    head: bytes = field(repr=False)
    body: bytes = field(repr=lambda body: f"{body[:400]!r}, {len(body)} bytes")
    is_whole: bool

    def json(self) -> dict[str, Any]:
        """Return the parsed body. Fails, and shows the reply, if it is not a whole JSON object."""
        assert self.is_whole, self
        return dict(json.loads(self.body))

    @property
    def is_replay(self) -> bool:
        """Whether it is the answer of an earlier request with the same key."""
        return b"idempotency-replayed: true" in self.head.lower()

    @property
    def error_code(self) -> str:
        """The code of an error, "" for none."""
        error = self.json().get("error") if self.is_whole and self.status >= 400 else None
        return str(error["code"]) if error else ""


@define
class Exchange:
    """One request whose response is being read."""

    stream: trio.SocketStream
    head: bytes = b""
    body: bytearray = field(factory=bytearray)
    _reader: Http1Reader = field(factory=Http1Reader)
    _has_ended: bool = False

    async def read(self) -> bool:
        """Receive one packet. Return False once the response is whole, or the connection has ended."""
        if self._reader.is_over or self._has_ended:
            return False
        try:
            data = await self.stream.receive_some(65536)
        except trio.BrokenResourceError:
            data = b""
        self._has_ended = not data
        if HEAD_END not in self.head:
            self.head += data
        self.body += self._reader.feed(data) if data else b""
        return bool(data)

    async def read_to_end(self) -> Reply:
        """Read the rest, until the server ends it in whatever way."""
        while await self.read():
            pass
        return self.reply

    async def read_until(self, wanted: Callable[[bytes], bool]) -> None:
        """Read until the body satisfies a condition. Fails if it ends before."""
        while not wanted(bytes(self.body)):
            assert await self.read(), f"ended early: {self.reply}"

    @property
    def reply(self) -> Reply:
        """What has come so far."""
        status = self._reader.status
        whole = self._reader.is_over
        return Reply(status, self.head.partition(HEAD_END)[0], bytes(self.body), whole)


@asynccontextmanager
async def exchange(
    node: Address,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
) -> AsyncIterator[Exchange]:
    """Send a request and yield its response; leaving the block closes the connection.

    Raises:
        OSError: The node cannot be reached.
    """
    async with await trio.open_tcp_stream("127.0.0.1", node.port) as stream:
        await stream.send_all(node.request(method, path, body, headers))
        yield Exchange(stream)


async def ask(
    node: Address,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
    seconds: float = TIMEOUT,
) -> Reply:
    """Send a request and return its response, as far as it comes; a dead node answers with status 0.

    Raises:
        trio.TooSlowError: The response has not ended within some seconds.
    """
    with trio.fail_after(seconds):
        try:
            async with exchange(node, method, path, body, headers) as connection:
                return await connection.read_to_end()
        except OSError:
            return Reply(0, b"", b"", False)
