"""HTTP/2: many streams on one connection."""

from __future__ import annotations

from typing import Any

import h2.events
import pytest
import trio
from hypercorn.trio.worker_context import EventWrapper
from trio.testing import wait_all_tasks_blocked

from hermes_trio.server.config import hypercorn_config
from hermes_trio.server.guards.http2 import BoundedStreamBuffer
from hermes_trio.server.guards.stream import GuardedStream
from tests.server.apps import Demo, Receive, Send, body, lifespan, start
from tests.support.in_process_server import serving
from tests.support.raw_http import h2_client

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
        assert [await client.answer(number) for number in numbers] == [
            (200, PART + b"end")
        ] * STREAMS


async def test_the_parts_of_many_streams_are_written_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writes: list[int] = []
    send_all = GuardedStream.send_all

    async def counting(stream: GuardedStream, data: bytes) -> None:
        writes.append(len(data))
        await send_all(stream, data)

    app = Choir()
    async with serving(app) as live, h2_client(live.port) as client:
        numbers = [await client.request() for _ in range(STREAMS)]
        for number in numbers:
            await client.status(number)
        monkeypatch.setattr(GuardedStream, "send_all", counting)
        app.go.set()
        for number in numbers:
            await client.until_body(number, PART.__eq__)
        assert len(writes) < STREAMS / 2, writes
        assert sum(writes) >= STREAMS * len(PART)
        app.end.set()


async def test_the_last_part_is_also_the_end() -> None:
    app = Choir()
    app.go.set()
    app.end.set()
    async with serving(app) as live, h2_client(live.port) as client:
        number = await client.request()
        assert await client.answer(number) == (200, PART + b"end")
        ends = [
            event.stream_ended for event in client.seen if isinstance(event, h2.events.DataReceived)
        ]
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
    """Answers without receiving, when told to."""

    def __init__(self) -> None:
        self.go = trio.Event()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        await self.go.wait()
        if scope["path"] == "/fail":
            raise ValueError("no")
        await start(send, 413)
        await body(send, b"no")


@pytest.mark.parametrize(("path", "status"), [(b"/", 413), (b"/fail", 500)])
async def test_an_application_that_does_not_receive_blocks_no_other_stream(
    path: bytes, status: int
) -> None:
    """Many small parts of a body fill the queue of messages for the application."""
    app = Unread()
    async with serving(app) as live, h2_client(live.port) as client:
        number = await client.request(path, b"POST", end=False)
        for _ in range(50):
            client.h2.send_data(number, b"x")
        await client.flush()
        await wait_all_tasks_blocked(0.02)
        app.go.set()
        with trio.fail_after(3):
            assert await client.status(number) == status
            assert await client.status(await client.request()) == 413


async def test_the_end_of_a_stream_is_awaited_until_it_is_sent() -> None:
    """Not only until the buffer is empty: a shutdown would overtake END_STREAM."""
    buffer = BoundedStreamBuffer(EventWrapper)
    await buffer.push(b"last")
    buffer.set_complete()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(buffer.drain)
        assert await buffer.pop(10) == b"last"
        await wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 1
        await buffer.close()


class Hurried:
    """Floods at /flood; elsewhere it begins to answer within a deadline that passes meanwhile."""

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        if scope["path"] == "/flood":
            await start(send)
            await body(send, bytes(8_000_000))
            return
        with trio.move_on_after(0.1):
            await start(send)
        await body(send, b"late")


async def test_a_cancelled_head_does_not_break_the_connection() -> None:
    """It waits behind a write that is under way.

    If it got lost, the client could not decode any head after it.
    """
    async with serving(Hurried()) as live, h2_client(live.port) as client:
        flood = await client.request(b"/flood")
        client.h2.increment_flow_control_window(10_000_000)
        client.h2.increment_flow_control_window(10_000_000, flood)
        await client.flush()
        await wait_all_tasks_blocked(
            0.1
        )  # the client does not read: the server is blocked in a write
        number = await client.request()
        await trio.sleep(0.2)
        assert await client.answer(number) == (200, b"late")
        assert await client.answer(await client.request()) == (200, b"late")
