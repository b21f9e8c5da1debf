"""A TCP proxy in front of a model's server.

What it does to an answer stands in the request, as the user's message.

``cut=120 by=FIN`` lets 120 bytes of the answer through and closes; ``by=RST`` resets; ``by=stall``
says nothing more; ``trickle=1`` sends byte by byte; ``delay=0.2`` waits first; ``insert=120
what=ff00`` puts bytes in at a place.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio
from attrs import define, field

from tests.robustness.real_connections import reset_on_close

_WORDS = re.compile(rb"(cut|by|trickle|delay|insert|what)=([\w.]+)")
_GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


@define(eq=False)
class FaultyProxy:
    """What it is in front of, and how long the longest answer was."""

    behind: int  # a port
    port: int = 0
    longest: int = 0

    async def serve(self, client: trio.SocketStream) -> None:
        """One connection."""
        with suppress(*_GONE):
            async with client, await trio.open_tcp_stream("127.0.0.1", self.behind) as server:
                link = _ProxiedConnection(self, client, server)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(link.requests, nursery.cancel_scope)
                    await link.answers()
                    nursery.cancel_scope.cancel()


@define(eq=False)
class _ProxiedConnection:
    proxy: FaultyProxy
    client: trio.SocketStream
    server: trio.SocketStream
    wanted: dict[bytes, bytes] = field(factory=dict)
    passed: int = 0

    async def requests(self, scope: trio.CancelScope) -> None:
        """Pass them on, and learn from each what is to be done to its answer."""
        with suppress(*_GONE):
            while data := await self.client.receive_some(65536):
                if data.startswith(b"POST"):
                    self.wanted, self.passed = {}, 0
                self.wanted.update(_WORDS.findall(data))
                await self.server.send_all(data)
        scope.cancel()

    async def answers(self) -> None:
        """Pass them on, less or more."""
        with suppress(*_GONE):
            while data := await self.server.receive_some(65536):
                if not await self._answer(bytes(data)):
                    return

    async def _answer(self, data: bytes) -> bool:
        if not self.passed:
            await trio.sleep(float(self.wanted.get(b"delay", b"0")))
        data, begin = self._with_garbage(data), self.passed
        self.passed += len(data)
        self.proxy.longest = max(self.proxy.longest, self.passed)
        cut = int(self.wanted.get(b"cut", b"1000000000"))
        await self._send(data[: max(0, cut - begin)])
        if self.passed < cut:
            return True
        await self._break_off()
        return False

    def _with_garbage(self, data: bytes) -> bytes:
        place = int(self.wanted.get(b"insert", b"1000000000")) - self.passed
        if not 0 <= place < len(data):
            return data
        return data[:place] + bytes.fromhex(self.wanted[b"what"].decode()) + data[place:]

    async def _send(self, data: bytes) -> None:
        pieces = (
            [data[n : n + 1] for n in range(len(data))] if b"trickle" in self.wanted else [data]
        )
        for piece in pieces:
            await self.client.send_all(piece)

    async def _break_off(self) -> None:
        match self.wanted.get(b"by", b"FIN"):
            case b"RST":
                reset_on_close(self.client.socket)
            case b"stall":
                await trio.sleep_forever()
            case _:
                pass


@asynccontextmanager
async def proxied(port: int) -> AsyncIterator[FaultyProxy]:
    """A proxy in front of a port of this machine."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    proxy = FaultyProxy(port, listeners[0].socket.getsockname()[1])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.serve_listeners, proxy.serve, listeners))
        yield proxy
        nursery.cancel_scope.cancel()
