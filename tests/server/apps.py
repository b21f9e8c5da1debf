"""Bare ASGI applications for the tests of the server.

No framework between the test and Hypercorn.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
CHUNK = b"x" * 1024
BIG = b"".join(b"%08d" % number for number in range(500_000))


async def lifespan(receive: Receive, send: Send) -> None:
    """Say yes to start-up and shutdown."""
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def start(send: Send, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
    """Begin a response."""
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})


async def body(send: Send, data: bytes, more: bool = False) -> None:
    """Send a part of a body, by default the last one."""
    await send({"type": "http.response.body", "body": data, "more_body": more})


@attrs.define
class Demo:
    """Answers at once, streams on demand, or floods, by path."""

    ticks: trio.MemorySendChannel[int] = attrs.field(init=False)
    _ticks: trio.MemoryReceiveChannel[int] = attrs.field(init=False)
    accepted: int = 0
    enough: float = math.inf
    flooding: trio.Event = attrs.field(factory=trio.Event)
    ended: trio.Event = attrs.field(factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self.ticks, self._ticks = trio.open_memory_channel[int](0)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
        elif scope["type"] == "websocket":
            await self.websocket(receive, send)
        else:
            await self.route(scope["path"], receive, send)

    async def route(self, path: str, receive: Receive, send: Send) -> None:
        """One request."""
        named = {"/ticks": self.ticking, "/flood": self.flood, "/deaf": self.deaf, "/big": self.big}
        if path in named:
            await named[path](receive, send)
        else:
            await self.small(path, send)

    async def small(self, path: str, send: Send) -> None:
        """A short answer; ``/early`` refuses without reading the body."""
        text = b"hello"
        await start(send, 401 if path == "/early" else 200, (b"content-length", b"%d" % len(text)))
        await body(send, text)

    async def ticking(self, receive: Receive, send: Send) -> None:
        """One SSE event for every tick of the test, until the client is gone."""
        await self._until_gone(self._tick, receive, send)

    async def _tick(self, send: Send) -> None:
        await start(send, 200, (b"content-type", b"text/event-stream"))
        async for number in self._ticks:
            await body(send, b"data: %d\n\n" % number, more=True)

    async def big(self, receive: Receive, send: Send) -> None:
        """A body in one large piece and one small one."""
        await start(send)
        await body(send, BIG, more=True)
        await body(send, b"end")

    async def flood(self, receive: Receive, send: Send) -> None:
        """As much as the server takes, until the client is gone."""
        await self._until_gone(self._pour, receive, send)

    async def deaf(self, receive: Receive, send: Send) -> None:
        """As much as the server takes, whatever comes in, until it is cancelled or has had enough."""
        try:
            await self._pour(send)
        finally:
            self.ended.set()

    async def _until_gone(
        self, work: Callable[[Send], Awaitable[None]], receive: Receive, send: Send
    ) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(work, send)
                while (await receive())["type"] != "http.disconnect":
                    pass
                nursery.cancel_scope.cancel()
        finally:
            self.ended.set()

    async def _pour(self, send: Send) -> None:
        await start(send)
        self.flooding.set()
        while self.accepted < self.enough:
            await body(send, CHUNK, more=True)
            self.accepted += len(CHUNK)

    async def websocket(self, receive: Receive, send: Send) -> None:
        """Accept everything, hear everything."""
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
