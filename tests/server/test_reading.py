"""A client that sends its next request before it has the last answer.

It is served, and it is seen to leave.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from hermes_trio.server.config import hypercorn_config
from hermes_trio.server.guards import stream as guarded
from tests.server.apps import BIG, Demo, body, lifespan, start
from tests.support.in_process_server import RunningServer, hypercorn_serving, serving
from tests.support.raw_http import connect, get, h2_client, read_to_end, read_until

FILLER = get("/filler", "X: " + "x" * 1000) * 100  # more than we keep, less than the kernel does
LONG = hypercorn_config(graceful_seconds=60)
Leave = Callable[[trio.SocketStream], Awaitable[None]]


async def close(client: trio.SocketStream) -> None:
    await client.aclose()


async def reset(client: trio.SocketStream) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await client.aclose()


async def half_close(client: trio.SocketStream) -> None:
    await client.send_eof()


every_way_out = pytest.mark.parametrize("leave", [close, reset, half_close])


async def no_connection(live: RunningServer) -> None:
    """All tasks of all connections end soon, not only when a timer does."""
    with trio.fail_after(2):
        while len(live.guards.connections):  # noqa: ASYNC110 - the register has no event, only a length
            await trio.sleep(0.01)


@every_way_out
@pytest.mark.parametrize("way", [serving, hypercorn_serving])
@pytest.mark.parametrize(
    "more", [b"", get("/"), b"G", FILLER], ids=["nothing", "request", "byte", "filler"]
)
async def test_a_client_that_leaves_interrupts_a_silent_stream(
    way: Any, leave: Leave, more: bytes
) -> None:
    app = Demo()
    async with way(app) as live:
        client = await connect(live.port)
        await client.send_all(get("/ticks") + more)
        await app.ticks.send(1)
        await read_until(client, b"data: 1")
        await trio.testing.wait_all_tasks_blocked()
        assert not app.ended.is_set()
        await leave(client)
        with trio.fail_after(2):
            await app.ended.wait()
        await no_connection(live)
        await client.aclose()
    assert live.guards.faults == 0


class Held:
    """Answers with the path of the request, the first one only when the test says so."""

    def __init__(self) -> None:
        self.begun = trio.Event()
        self.go = trio.Event()
        self.gone = trio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.answer, scope["path"].encode(), send)
            while (await receive())["type"] != "http.disconnect":
                pass
            if not self.go.is_set():
                self.gone.set()
            nursery.cancel_scope.cancel()

    async def answer(self, path: bytes, send: Any) -> None:
        self.begun.set()
        await self.go.wait()
        await start(send, 200, (b"content-length", b"%d" % len(path)))
        await body(send, path)


@asynccontextmanager
async def holding(*parts: bytes) -> AsyncIterator[tuple[Held, RunningServer, trio.SocketStream]]:
    """A client that has sent some parts, one at a time, of which the first is a request that is held."""
    app = Held()
    async with serving(app, LONG) as live, await connect(live.port) as client:
        for part in parts:
            await client.send_all(part)
            await app.begun.wait()
            await trio.testing.wait_all_tasks_blocked(0.01)
        yield app, live, client


async def test_a_handler_that_has_not_answered_yet_is_interrupted() -> None:
    async with holding(get("/a") + get("/b")) as (app, live, client):
        await client.aclose()
        with trio.fail_after(2):
            await app.gone.wait()
        await no_connection(live)


async def test_a_proposal_of_h2c_hides_nothing() -> None:
    h2c = get(
        "/a",
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA",
    )
    async with holding(h2c) as (app, live, client):
        await client.aclose()
        with trio.fail_after(2):
            await app.gone.wait()
        await no_connection(live)


@pytest.mark.parametrize(
    "parts",
    [
        [get("/a") + get("/b") + get("/c")],
        [get("/a") + get("/b"), get("/c")],
        [get("/a"), get("/b"), get("/c")],
        [get("/a") + get("/b")[:7], get("/b")[7:] + get("/c")[:-1], get("/c")[-1:]],
        [get("/a") + b"G", *(bytes([byte]) for byte in (get("/b") + get("/c"))[1:])],
    ],
)
async def test_a_client_that_stays_gets_its_answers_in_order(parts: list[bytes]) -> None:
    async with holding(*parts) as (app, live, client):
        app.go.set()
        answers = await read_until(client, b"\r\n\r\n/c")
        assert re.findall(rb"\r\n\r\n(/.)", answers) == [b"/a", b"/b", b"/c"]
        await client.send_all(get("/d"))  # and the connection is as good as new
        await read_until(client, b"\r\n\r\n/d")
        assert len(live.guards.connections) == 1


async def test_we_keep_little_of_what_is_not_its_turn() -> None:
    """And nothing of it is lost: what we do not take stays in the kernel."""
    async with holding(get("/a") + get("/b"), FILLER + get("/last")) as (app, live, client):
        [connection] = live.guards.connections
        assert len(connection._ahead) == guarded.READ_AHEAD < len(FILLER)
        app.go.set()
        answers = await read_until(client, b"\r\n\r\n/last")
        assert answers.count(b"\r\n\r\n/filler") == 100


left_over = pytest.mark.parametrize("more", [get("/"), FILLER], ids=["request", "filler"])


@left_over
async def test_a_dropped_connection_leaves_no_reader_behind(
    more: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told; it does not find out at its next look."""
    monkeypatch.setattr(guarded, "HANGUP_POLL_SECONDS", 60)
    app = Demo()
    async with serving(app, LONG, write_seconds=0.1) as live, await connect(live.port) as client:
        await client.send_all(get("/flood") + more)
        await app.ended.wait()
        await no_connection(live)
        live.stop.set()
        with trio.fail_after(5):
            await live.stopped.wait()


@left_over
async def test_a_closing_answer_leaves_no_reader_behind(
    more: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded, "HANGUP_POLL_SECONDS", 60)
    config = hypercorn_config(graceful_seconds=60)
    config.keep_alive_max_requests = 0
    async with serving(Demo(), config) as live, await connect(live.port) as client:
        await client.send_all(get("/") + more)
        assert (await read_to_end(client)).count(b"hello") == 1
        await client.aclose()  # one who has more to say may hear us out
        await no_connection(live)


async def test_a_shutdown_ends_a_client_with_requests_left() -> None:
    """The answer under way is given; the next request is not taken any more."""
    async with holding(get("/a") + get("/b")) as (app, live, client):
        live.stop.set()
        await trio.testing.wait_all_tasks_blocked(0.01)
        app.go.set()
        assert (await read_to_end(client)).endswith(b"\r\n\r\n/a")
        with trio.fail_after(5):
            await live.stopped.wait()


@every_way_out
async def test_http_2_is_not_concerned(leave: Leave) -> None:
    app = Demo()
    async with serving(app) as live, h2_client(live.port) as client:
        number = await client.request(b"/ticks")
        assert await client.answer(await client.request()) == (200, b"hello")
        await app.ticks.send(1)
        assert await client.until_body(number, bool) == b"data: 1\n\n"
        assert isinstance(client.stream, trio.SocketStream)
        await leave(client.stream)
        await app.ended.wait()
        await no_connection(live)


async def test_an_end_that_came_with_the_request_is_not_missed() -> None:
    app = Demo()
    async with serving(app) as live, await connect(live.port) as client:
        await client.send_all(get("/"))
        await read_until(client, b"hello")
        await client.send_all(get("/ticks"))
        client.socket.shutdown(
            trio.socket.SHUT_WR
        )  # nobody on the other side had a turn in between
        with trio.fail_after(5):
            await app.ended.wait()


async def test_what_nobody_will_read_does_not_spoil_the_answer() -> None:
    """To close with something unread would reset the connection, and the reset overtakes the answer."""
    async with serving(Demo()) as live, await connect(live.port) as client:
        await client.send_all(get("/big", "Connection: close") + get("/", "X: " + "x" * 1000) * 100)
        seen = 0
        while data := await client.receive_some(2**16):
            seen += len(data)
        assert seen > len(BIG)


@pytest.mark.parametrize("more", [b"\r\n", b"garbage", get("/b")])
async def test_bytes_behind_the_last_request_are_ignored(more: bytes) -> None:
    """However much comes, and whether it comes with the request or after it."""
    async with holding(get("/a", "Connection: close") + more, more) as (app, live, client):
        assert not app.gone.is_set()
        app.go.set()
        answer = await read_to_end(client)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"\r\n\r\n/a")
        await client.aclose()
        await no_connection(live)
