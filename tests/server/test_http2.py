"""HTTP/2: many streams on one connection."""

from __future__ import annotations

from typing import Any

import h2.events
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.server.config import hypercorn_config
from tests.server.apps import Demo, Receive, Send, body, lifespan, start
from tests.server.raw import h2_client
from tests.server.running import serving

STREAMS = 20
WINDOW = 65_535
PART = b"x" * 1000


class Choir:
    """Begins to answer every request, goes on at `go`, and ends at `end`."""

    def __init__(self) -> None:
        self.go, self.end = trio.Event(), trio.Event()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        await start(send)
        await self.go.wait()
        await body(send, PART, more=True)
        await self.end.wait()
        await body(send, b"end")


async def test_every_stream_gets_its_own_parts() -> None:
    app = Choir()
    async with serving(app) as live, h2_client(live.port) as client:
        numbers = [await client.request() for _ in range(STREAMS)]
        app.go.set()
        for number in numbers:
            await client.until_body(number, PART.__eq__)
        app.end.set()
        assert [await client.answer(number) for number in numbers] == [(200, PART + b"end")] * STREAMS


async def test_the_last_part_is_also_the_end() -> None:
    app = Choir()
    app.go.set()
    app.end.set()
    async with serving(app) as live, h2_client(live.port) as client:
        number = await client.request()
        assert await client.answer(number) == (200, PART + b"end")
        ends = [event.stream_ended for event in client.seen if isinstance(event, h2.events.DataReceived)]
        assert ends[-1] is not None


async def test_a_head_has_no_body() -> None:
    async with serving(Demo()) as live, h2_client(live.port) as client:
        assert await client.answer(await client.request(method=b"HEAD")) == (200, b"")


@pytest.mark.parametrize("is_slow", [True, False])
async def test_a_shutdown_loses_no_end_of_a_stream(is_slow: bool) -> None:
    """END_STREAM is on the wire before the connection is closed."""
    app = Choir()
    app.go.set()
    async with (
        serving(app, hypercorn_config(graceful_seconds=5)) as live,
        h2_client(live.port, grant=not is_slow) as client,
    ):
        number = await client.request()
        await client.until_body(number, PART.__eq__)
        live.stop.set()
        await wait_all_tasks_blocked(0.01)
        app.end.set()
        assert await client.answer(number) == (200, PART + b"end")
        await live.stopped.wait()


class Unread:
    """Answers without receiving, at the path /hold when told to."""

    def __init__(self) -> None:
        self.go = trio.Event()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        if scope["path"] == "/fail":
            raise ValueError("no")
        await start(send, 413)
        await body(send, b"no")


@pytest.mark.parametrize(("path", "status"), [(b"/", 413), (b"/fail", 500)])
async def test_an_application_that_does_not_receive_blocks_no_other_stream(path: bytes, status: int) -> None:
    """Many small parts of a body, which fill the queue of messages for the application."""
    async with serving(Unread()) as live, h2_client(live.port) as client:
        number = await client.request(path, b"POST", end=False)
        for _ in range(50):
            client.h2.send_data(number, b"x")
        await client.flush()
        with trio.fail_after(3):
            assert await client.status(number) == status
            assert await client.status(await client.request()) == 413
