"""A server on a loopback socket that streams one run, and drops connections where a test wants it to."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import trio
from attrs import Factory, define, frozen

from hermes_trio.client.api_client import ApiClient, Target, open_client
from hermes_trio.core.changes import Change
from hermes_trio.core.dialects.runs import frames_after
from tests.client.runs import HEADER, RUN_ID

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


@frozen
class Asked:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> object:
        """The body."""
        return json.loads(self.body)


@define
class Flaky:
    """The events of one run.

    Every connection gets at most ``budget(number)`` bytes of them and is cut then.
    """

    changes: list[Change]
    budget: Callable[[int], int] = lambda _number: 1_000_000
    answers: list[bytes] = Factory(list)  # sent instead, the first to the first request, and so on
    asked: list[Asked] = Factory(list)

    async def respond(self, asked: Asked, stream: trio.SocketStream) -> None:
        """Answer one request."""
        self.asked.append(asked)
        await stream.send_all(self.answers.pop(0) if self.answers else self._answer(asked))

    def _answer(self, asked: Asked) -> bytes:
        if asked.path == f"/v1/runs/{RUN_ID}/events":
            number = sum(each.path == asked.path for each in self.asked) - 1
            after = int(asked.headers.get("last-event-id", "-1"))
            return HEAD + frames_after(HEADER, self.changes, after)[: self.budget(number)]
        return reply(202, {"run_id": RUN_ID, "status": "started"})


def reply(status: int, body: object, *headers: str) -> bytes:
    """An answer in one piece."""
    content = json.dumps(body).encode()
    lines = [
        f"HTTP/1.1 {status} X",
        f"Content-Length: {len(content)}",
        "Connection: close",
        *headers,
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + content


def error(status: int, code: str, *headers: str) -> bytes:
    """A refusal."""
    return reply(status, {"error": {"message": f"no: {code}", "code": code}}, *headers)


async def _read(stream: trio.SocketStream) -> Asked:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive_some()
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += await stream.receive_some()
    method, path, _ = first.split()
    return Asked(method, path, headers, body)


class Responder(Protocol):
    """Answers requests, each on a connection of its own."""

    async def respond(self, asked: Asked, stream: trio.SocketStream) -> None:
        """Answer one request; the connection is closed then."""
        ...


@asynccontextmanager
async def calling(server: Responder) -> AsyncIterator[ApiClient]:
    """A caller of such a server."""

    async def handle(stream: trio.SocketStream) -> None:
        async with stream:
            with suppress(trio.BrokenResourceError):  # the client need not listen to the end
                await server.respond(await _read(stream), stream)

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        port = listener.socket.getsockname()[1]
        async with open_client(Target(f"http://127.0.0.1:{port}", "key", is_local=True)) as client:
            yield client
        nursery.cancel_scope.cancel()
