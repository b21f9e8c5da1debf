"""Write-through: bytes in the order they were sent, none lost and none twice, and inert where it cannot work."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import h11
import pytest
import trio

from hermes_trio.runs.delivery import EXTENSION
from hermes_trio.server.config import hypercorn_config
from hermes_trio.server.guards.middleware import WriteThroughExtension
from tests.server.apps import Receive, Send, body, lifespan, start
from tests.server.test_guards_tls import authority, connect_tls, secure
from tests.support.in_process_server import RunningServer, serving
from tests.support.raw_http import H2Client, ask, connect, get, h2_client, read_to_end, read_until

__all__ = ["authority", "secure"]

CLOSE = "Connection: close"
BIG = b"".join(b"%07d\n" % number for number in range(1_000_000))

Act = Callable[[WriteThroughExtension, Send], Awaitable[None]]


class App:
    """Answers through the extension, and notes what it is offered and what `try_send` returned."""

    def __init__(self, act: Act, *headers: tuple[bytes, bytes], status: int = 200) -> None:
        self._act, self._headers, self._status = act, headers, status
        self.offered: list[Any] = []
        self.done = trio.Event()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        self.offered.append(scope["extensions"].get(EXTENSION))
        try:
            offered = self.offered[-1] or WriteThroughExtension(lambda _: False)
            assert not offered.try_send(b"too early")
            await start(send, self._status, *self._headers)
            await self._act(offered, send)
            assert not offered.try_send(b"too late")
        finally:
            self.done.set()


def parsed(answer: bytes, method: str = "GET") -> bytes:
    """The body of an answer, as a client that checks the framing reads it."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "localhost")]))
    client.send(h11.EndOfMessage())
    client.receive_data(answer)
    client.receive_data(b"")
    seen = b""
    while not isinstance(event := client.next_event(), h11.EndOfMessage):
        seen += bytes(event.data) if isinstance(event, h11.Data) else b""
    return seen


async def three_parts(offered: WriteThroughExtension, send: Send) -> None:
    """One by one, the way a writer does it: at once if that works, else the ordinary way."""
    for part in (b"one ", b"", b"two ", b"three "):
        if not offered.try_send(part):
            await body(send, part, more=True)
    await body(send, b"end")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_parts_are_on_the_wire_at_once(method: str) -> None:
    results: list[bool] = []
    go = trio.Event()

    async def act(offered: WriteThroughExtension, send: Send) -> None:
        results.extend(offered.try_send(part) for part in (b"one ", b"", b"two"))
        await go.wait()
        await body(send, b" three ", more=True)
        results.append(offered.try_send(b"four"))
        await body(send, b"")

    async with serving(App(act)) as live, await connect(live.port) as client:
        await client.send_all(get("/", CLOSE).replace(b"GET", method.encode()))
        answer = await read_until(client, b"3\r\ntwo\r\n")
        go.set()
        answer += await read_to_end(client)
    assert results == [True, True, True, True]
    assert parsed(answer, method) == b"one two three four"


async def test_a_connection_serves_the_next_request() -> None:
    async with serving(App(three_parts)) as live, await connect(live.port) as client:
        for _ in range(3):
            await client.send_all(get("/"))
            assert parsed(await read_until(client, b"0\r\n\r\n")) == b"one two three end"


def with_small_buffer(live: RunningServer) -> None:
    """Let the kernel take little, so that writes are partial."""
    [connection] = live.guards.connections
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


async def test_a_partial_write_loses_and_repeats_nothing() -> None:
    results: list[bool] = []

    async def act(offered: WriteThroughExtension, send: Send) -> None:
        with_small_buffer(live)
        for size in (10, 1_000, 100_000, 7, 1_000_000, 1):
            for part in (BIG[:size], BIG[-size:]):
                results.append(offered.try_send(part))
                if not results[-1]:
                    assert not offered.try_send(b"out of turn")
                    await body(send, part, more=True)
        await body(send, b"end")

    async with serving(App(act)) as live:
        answer = await ask(live.port, get("/", CLOSE))
    wanted = b"".join(BIG[:size] + BIG[-size:] for size in (10, 1_000, 100_000, 7, 1_000_000, 1))
    assert parsed(answer) == wanted + b"end"
    assert {True, False} == set(results)


async def test_a_partial_write_to_a_stalled_reader_ends_at_the_deadline() -> None:
    async def act(offered: WriteThroughExtension, send: Send) -> None:
        assert not offered.try_send(BIG)
        await body(send, BIG, more=True)

    app = App(act)
    async with serving(app, write_seconds=0.1) as live, await connect(live.port) as client:
        await client.send_all(get("/"))
        await app.done.wait()
        assert live.guards.faults == 0


@pytest.mark.parametrize(("data", "more"), [(b"another", True), (BIG[:-1], True), (b"", False)])
async def test_who_does_not_repeat_a_partial_write_loses_the_connection(
    data: bytes, more: bool
) -> None:
    async def act(offered: WriteThroughExtension, send: Send) -> None:
        assert not offered.try_send(BIG)
        with pytest.raises(RuntimeError, match="must begin with the chunk"):
            await body(send, data, more)

    app = App(act)
    async with serving(app) as live, await connect(live.port) as client:
        await client.send_all(get("/"))
        await app.done.wait()
        answer = await read_to_end(client)
    assert BIG.startswith(answer.partition(b"7a1200\r\n")[2])


async def test_an_ordinary_send_in_progress_is_not_overtaken() -> None:
    """Also when the kernel has room again and the sender has not had its turn yet."""
    results: list[bool] = []
    seen = b""

    async def act(offered: WriteThroughExtension, send: Send) -> None:
        nonlocal seen
        async with trio.open_nursery() as nursery:
            nursery.start_soon(body, send, BIG, True)
            await trio.testing.wait_all_tasks_blocked(0.05)
            seen += os.read(client.socket.fileno(), 2**20)
            results.append(offered.try_send(b"in between"))
            reading.set()
        results.append(offered.try_send(b"after"))
        await body(send, b"")

    reading = trio.Event()
    async with serving(App(act)) as live, await connect(live.port) as client:
        await client.send_all(get("/", CLOSE))
        await reading.wait()
        seen += await read_to_end(client)
    assert results[0] is False
    assert parsed(seen) == BIG + (b"after" if results[1] else b"")


async def test_a_client_that_is_gone_raises_nothing() -> None:
    left = trio.Event()

    async def act(offered: WriteThroughExtension, send: Send) -> None:
        await left.wait()
        for _ in range(100):
            offered.try_send(b"x" * 1_000)
            await trio.lowlevel.checkpoint()
        assert not offered.try_send(b"x")
        await body(send, b"x", more=True)

    app = App(act)
    async with serving(app) as live:
        async with await connect(live.port) as client:
            await client.send_all(get("/"))
            await read_until(client, b"\r\n\r\n")
        left.set()
        await app.done.wait()
    assert live.guards.faults == 0


async def test_the_descriptor_of_a_closed_connection_is_not_written_to() -> None:
    async def act(offered: WriteThroughExtension, send: Send) -> None:
        [connection] = live.guards.connections
        await connection.abort()
        ours, theirs = socket.socketpair()  # which gets the number of the closed one
        with ours, theirs:
            theirs.setblocking(False)
            assert not offered.try_send(b"lost")
            with pytest.raises(BlockingIOError):
                theirs.recv(1)

    app = App(act)
    async with serving(app) as live, await connect(live.port) as client:
        await client.send_all(get("/"))
        await app.done.wait()


LENGTH = (b"Content-Length", b"17")


@pytest.mark.parametrize(
    ("line", "headers", "status", "end"),
    [
        ("GET / HTTP/1.0", (), 200, b"\r\n\r\none two three end"),
        ("HEAD / HTTP/1.1", (), 200, b"\r\n\r\n"),
        ("GET / HTTP/1.1", (LENGTH,), 200, b"\r\n\r\none two three end"),
        ("GET / HTTP/1.1", (), 304, b"\r\n\r\n"),
    ],
)
async def test_it_is_inert_where_there_are_no_chunks(
    line: str, headers: tuple[tuple[bytes, bytes], ...], status: int, end: bytes
) -> None:
    async def act(offered: WriteThroughExtension, send: Send) -> None:
        assert not offered.try_send(b"not in chunks")
        await three_parts(offered, send)

    async with serving(App(act, *headers, status=status)) as live:
        answer = await ask(live.port, f"{line}\r\nHost: localhost\r\n{CLOSE}\r\n\r\n".encode())
    assert answer.endswith(end)


async def test_http_2_does_not_offer_it() -> None:
    app = App(three_parts)
    async with serving(app) as live, h2_client(live.port) as client:
        assert await client.answer(await client.request()) == (200, b"one two three end")
    assert app.offered == [None]


@pytest.mark.parametrize("protocol", ["h2", "http/1.1"])
async def test_tls_does_not_offer_it(authority: Any, secure: Any, protocol: str) -> None:
    app = App(three_parts)
    async with (
        serving(app, secure) as live,
        await connect_tls(live.port, authority, protocol) as stream,
    ):
        if protocol == "h2":
            client = H2Client(stream)
            await client.start()
            assert await client.answer(await client.request()) == (200, b"one two three end")
        else:
            await stream.send_all(get("/", CLOSE))
            assert parsed(await read_to_end(stream)) == b"one two three end"
    assert app.offered == [None]


async def test_an_idle_connection_is_closed_after_such_a_response() -> None:
    config = hypercorn_config(keep_alive_seconds=0.1, graceful_seconds=0.05)
    async with serving(App(three_parts), config) as live, await connect(live.port) as client:
        await client.send_all(get("/"))
        await read_until(client, b"0\r\n\r\n")
        assert await read_to_end(client) == b""
