"""HTTP/2: what goes out in which write."""

from __future__ import annotations

from typing import Any

import h2.events
import pytest
import trio
from hypercorn.events import RawData
from hypercorn.protocol.h2 import BUFFER_HIGH_WATER
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.wire import SEND_NOW, SEND_PART
from hermes_trio.server import http2
from hermes_trio.server.connection import GuardedTCPServer
from tests.server.apps import Receive, Send, body, lifespan, start
from tests.server.raw import h2_client
from tests.server.running import serving

STREAMS = 20
WINDOW = 65_535
PART = b"x" * 1000


class Choir:
    """All begin to answer, and go on when they are told to, in one turn of the loop."""

    def __init__(self) -> None:
        self.begun = 0
        self.go, self.end = trio.Event(), trio.Event()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        await start(send)
        self.begun += 1
        await self.go.wait()
        await body(send, PART, more=True)
        await self.end.wait()
        await body(send, b"end")


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much each write held."""
    sizes: list[int] = []
    real = GuardedTCPServer.protocol_send

    async def spy(server: GuardedTCPServer, event: Any) -> None:
        if isinstance(event, RawData):
            sizes.append(len(event.data))
        await real(server, event)

    monkeypatch.setattr(GuardedTCPServer, "protocol_send", spy)
    return sizes


async def sing(writes: list[int]) -> None:
    """Note the writes of what all say in one turn of the loop."""
    app = Choir()
    async with serving(app) as live, h2_client(live.port) as client:
        numbers = [await client.request() for _ in range(STREAMS)]
        for number in numbers:
            await client.status(number)
        await wait_all_tasks_blocked()
        writes.clear()
        app.go.set()
        for number in numbers:
            await client.until_body(number, PART.__eq__)
        noted = [*writes]
        app.end.set()
        assert [await client.answer(number) for number in numbers] == [(200, PART + b"end")] * STREAMS
    writes[:] = noted


async def test_what_streams_have_to_say_goes_out_in_one_write(writes: list[int]) -> None:
    await sing(writes)
    assert writes == [STREAMS * (http2.FRAME_HEAD + len(PART))]


async def test_much_goes_out_in_several(writes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "WRITE", 5 * (http2.FRAME_HEAD + len(PART)))
    await sing(writes)
    assert writes == [http2.WRITE] * (STREAMS // 5)


class Parts:
    """Sends parts the short way, if there is one, until its client is gone."""

    def __init__(self) -> None:
        self.sent = 0
        self.ended = trio.Event()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        await start(send)
        if (send_part := scope.get(SEND_PART)) is None:
            await body(send, b"long")
            return
        try:
            while self.sent < 100 or scope["path"] == "/endless":
                await send_part(b"short ")
                self.sent += 1
            await body(send, b"end")
        finally:
            self.ended.set()


async def test_parts_take_the_short_way() -> None:
    async with serving(Parts()) as live, h2_client(live.port) as client:
        assert await client.answer(await client.request()) == (200, b"short " * 100 + b"end")


async def test_there_is_no_short_way_to_the_body_of_a_head() -> None:
    async with serving(Parts()) as live, h2_client(live.port) as client:
        assert await client.answer(await client.request(method=b"HEAD")) == (200, b"")


async def test_the_short_way_is_bounded_and_ends_with_the_stream() -> None:
    app = Parts()
    async with serving(app) as live, h2_client(live.port, grant=False) as client:
        number = await client.request(b"/endless")
        await client.until_body(number, lambda body: len(body) >= WINDOW)
        await wait_all_tasks_blocked()
        assert WINDOW <= 6 * app.sent <= WINDOW + BUFFER_HIGH_WATER + 6
        client.h2.reset_stream(number)
        await client.flush()
        sent = app.sent
        while app.sent < sent + 3:  # it hears nothing of it, and goes on into the void
            await trio.lowlevel.checkpoint()
        assert await client.status(await client.request(method=b"HEAD")) == 200  # the others have their turn
    assert app.ended.is_set()


async def test_the_last_part_is_also_the_end() -> None:
    app = Choir()
    app.go.set()
    app.end.set()
    async with serving(app) as live, h2_client(live.port) as client:
        number = await client.request()
        assert await client.answer(number) == (200, PART + b"end")
        ends = [event.stream_ended for event in client.seen if isinstance(event, h2.events.DataReceived)]
        assert ends[-1] is not None


class AtOnce:
    """Sends parts without waiting until there is no room, waits for that, and once more when its stream is over."""

    def __init__(self) -> None:
        self.sent = 0
        self.late: list[bool] = []

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        await start(send)
        for _ in range(3):
            while scope[SEND_NOW](b"short "):
                self.sent += 1
            self.sent += 1
            await scope[SEND_PART](b"")
        await body(send, b"end")
        self.late = [scope[SEND_NOW](b"lost")]


async def test_parts_without_waiting_are_bounded_too() -> None:
    app = AtOnce()
    async with serving(app) as live, h2_client(live.port, grant=False) as client:
        number = await client.request()
        await client.until_body(number, lambda body: len(body) >= WINDOW)
        await wait_all_tasks_blocked()
        assert WINDOW <= 6 * app.sent <= WINDOW + 2 * (BUFFER_HIGH_WATER + 6)
    app = AtOnce()
    async with serving(app) as live, h2_client(live.port) as client:
        assert await client.answer(await client.request()) == (200, b"short " * app.sent + b"end")
        await wait_all_tasks_blocked()
    assert app.late == [False]
