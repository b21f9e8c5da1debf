"""Writes: all of the data, in order, within a deadline, and never at the cost of the other tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio

from hermes_trio.server.config import hypercorn_config
from hermes_trio.server.guards import Guards, stream
from tests.server.apps import BIG, Demo, body, lifespan, start
from tests.support.in_process_server import RunningServer, hypercorn_serving, serving
from tests.support.raw_http import ask, connect, get, read_to_end, read_until

Serving = Callable[..., AbstractAsyncContextManager[RunningServer]]
CLOSE = "Connection: close"


async def stalled_reader(app: Demo, live: RunningServer) -> trio.SocketStream:
    """A client that asked for a flood and takes none of it, with the server stuck in a write."""
    client = await connect(live.port)
    await client.send_all(get("/flood"))
    await app.flooding.wait()
    await trio.testing.wait_all_tasks_blocked(0.1)  # longer than TCP delays an acknowledgement
    return client


async def test_a_stalled_reader_is_dropped_at_the_deadline() -> None:
    app = Demo()
    async with serving(app, write_seconds=0.1) as live, await stalled_reader(app, live):
        await app.ended.wait()
    assert len(live.guards.connections) == 0
    assert live.guards.faults == 0


async def test_a_stalled_reader_does_not_hold_our_shutdown() -> None:
    app = Demo()
    async with serving(app, write_seconds=60) as live, await stalled_reader(app, live):
        live.stop.set()
        with trio.fail_after(5):  # the grace of 0.05 s, not the 60 s of the write
            await live.stopped.wait()


async def test_a_stalled_reader_does_not_hold_hypercorns_shutdown() -> None:
    app = Demo()
    async with hypercorn_serving(app, write_seconds=0.3) as live, await stalled_reader(app, live):
        live.stop.set()
        with trio.fail_after(5):
            await live.stopped.wait()


async def test_a_slow_reader_is_not_a_stalled_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline counts for a piece: a large body may take many times as long."""
    waits: list[float] = []

    def note(self: Guards) -> float:
        waits.append(real(self))
        return waits[-1]

    real = Guards.write_deadline
    monkeypatch.setattr(Guards, "write_deadline", note)
    async with serving(Demo()) as live:
        answer = await ask(live.port, get("/big", CLOSE))
    assert len(waits) > len(BIG) // 2 // stream.WRITE_PIECE
    assert answer.endswith(b"%x\r\n%b\r\n3\r\nend\r\n0\r\n\r\n" % (len(BIG), BIG))


async def test_a_write_under_way_is_shortened_and_never_lengthened() -> None:
    guards, (left, right) = Guards(60), trio.socket.socketpair()
    with right:
        guarded = stream.GuardedStream(
            trio.SocketStream(left), trio.CancelScope(), guards.write_deadline
        )
        guards.connections.add(guarded)

        async def send() -> None:
            with pytest.raises(trio.BrokenResourceError, match="does not read"):
                await guarded.send_all(bytes(2**24))

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                await trio.testing.wait_all_tasks_blocked()
                guards.limit_writes(trio.current_time() + 0.02)
                guards.limit_writes(trio.current_time() + 60)
        assert left.fileno() == -1


async def test_a_fast_producer_leaves_room_for_others() -> None:
    async with (
        serving(Demo()) as live,
        await connect(live.port) as reader,
        trio.open_nursery() as nursery,
    ):
        await reader.send_all(get("/flood"))
        nursery.start_soon(read_to_end, reader)
        for _ in range(3):
            assert b"hello" in await ask(live.port, get("/", CLOSE))
        nursery.cancel_scope.cancel()


async def test_a_producer_that_ignores_the_end_does_not_spin() -> None:
    app = Demo()
    async with serving(app) as live:
        async with await connect(live.port) as client:
            await client.send_all(get("/deaf"))
            await app.flooding.wait()
        for _ in range(3):
            assert b"hello" in await ask(live.port, get("/", CLOSE))
        assert not app.ended.is_set()
    assert app.ended.is_set()


async def test_an_application_that_cannot_be_told_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its queue is full of a body that it never reads, and its client is gone."""
    monkeypatch.setattr(stream, "GONE_SECONDS", 0.05)
    app = Demo()
    async with serving(app, write_seconds=0.1) as live, await connect(live.port) as client:
        head = b"POST /deaf HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        await client.send_all(head + b"1\r\nx\r\n" * 50)
        await app.ended.wait()
    assert live.guards.faults == 0


class Cancelling:
    """An application that cancels its own sending."""

    def __init__(self, act: Callable[[Any], Awaitable[None]]) -> None:
        self.act = act

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
        else:
            await self.act(send)


async def test_a_cancelled_producer_is_told() -> None:
    async def act(send: Any) -> None:
        await start(send)
        with trio.move_on_after(0.02):
            while True:
                await body(send, b"x", more=True)
        await body(send, b"after")

    async with serving(Cancelling(act)) as live:
        answer = await ask(live.port, get("/", CLOSE))
    assert answer.endswith(b"5\r\nafter\r\n0\r\n\r\n")


async def test_a_cancelled_message_is_sent_whole_or_not_at_all() -> None:
    """What the protocol counts as sent is on the wire, else the next chunk would be read as its rest."""
    sent = 0

    async def act(send: Any) -> None:
        nonlocal sent
        await start(send)
        with trio.move_on_after(
            0.1
        ):  # the client does not read yet, so a write is under way when this fires
            while True:
                await body(send, b"%08d" % sent * 1000, more=True)
                sent += 1
        await body(send, b"end")

    async with serving(Cancelling(act)) as live, await connect(live.port) as client:
        await client.send_all(get("/", CLOSE))
        await trio.sleep(0.2)
        answer = await read_to_end(client)
    chunks = (b"1f40\r\n%b\r\n" % (b"%08d" % number * 1000) for number in range(sent))
    assert answer.partition(b"\r\n\r\n")[2] == b"".join(chunks) + b"3\r\nend\r\n0\r\n\r\n"


async def test_a_head_that_was_cancelled_can_be_sent_again() -> None:
    """Else the application's end would be answered with a second head, or none."""

    async def act(send: Any) -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await start(send, 200, (b"content-length", b"5"))
        await start(send, 201, (b"content-length", b"5"))
        await body(send, b"later")

    async with serving(Cancelling(act)) as live:
        answer = await ask(live.port, get("/", CLOSE))
    assert answer.startswith(b"HTTP/1.1 201 ")
    assert answer.endswith(b"\r\n\r\nlater")
    assert live.guards.faults == 0


async def test_a_response_ended_under_cancellation_leaves_a_usable_connection() -> None:
    async def act(send: Any) -> None:
        await start(send, 200, (b"content-length", b"5"))
        await body(send, b"whole", more=True)
        with trio.CancelScope() as scope:
            scope.cancel()
            await body(send, b"")

    async with serving(Cancelling(act)) as live, await connect(live.port) as client:
        for _ in range(3):
            await client.send_all(get("/"))
            await read_until(client, b"whole")


async def quart_like(scope: Any, receive: Any, send: Any) -> None:
    """Cancels itself on the disconnect that the end of its own answer brings, as Quart-Trio does."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return

    async def answer() -> None:
        await start(send, 200, (b"content-length", b"2"))
        await body(send, b"ok")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        while (await receive())["type"] != "http.disconnect":
            pass
        nursery.cancel_scope.cancel()


async def test_a_closing_answer_is_closed() -> None:
    async with serving(quart_like) as live:
        for _ in range(20):
            assert (await ask(live.port, get("/", CLOSE))).endswith(b"ok")


async def test_an_idle_connection_is_closed_after_its_answers() -> None:
    config = hypercorn_config(keep_alive_seconds=0.1, graceful_seconds=0.05)
    async with serving(quart_like, config) as live, await connect(live.port) as client:
        for _ in range(3):
            await client.send_all(get("/"))
            await read_until(client, b"ok")
        assert await read_to_end(client) == b""


async def test_idle_connections_do_not_hold_a_shutdown() -> None:
    config = hypercorn_config(graceful_seconds=60)
    async with serving(quart_like, config) as live, await connect(live.port) as client:
        await client.send_all(get("/"))
        await read_until(client, b"ok")
        live.stop.set()
        with trio.fail_after(5):
            await live.stopped.wait()
