"""HTTP/1.1 and HTTP/2 on the wire: what is refused, what is bounded, and what still works."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import h2.events
import h2.settings
import pytest
import trio
from hypercorn.protocol.h2 import BUFFER_HIGH_WATER
from hypercorn.trio.worker_context import EventWrapper

from hermes_trio.server.config import ServerConfig, hypercorn_config
from hermes_trio.server.guards import stream
from hermes_trio.server.guards.http2 import BoundedStreamBuffer, refusal_status
from tests.server.apps import BIG, CHUNK, Demo, body, lifespan, start
from tests.support.in_process_server import serving
from tests.support.raw_http import UPGRADE, ask, connect, get, h2_client, read_to_end, read_until

WINDOW = 65_535
H2C = (
    "Connection: Upgrade, HTTP2-Settings",
    "Upgrade: h2c",
    "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA",
)


def brief() -> ServerConfig:
    """Settings under which an idle connection soon ends."""
    return hypercorn_config(keep_alive_seconds=0.1, graceful_seconds=0.05)


# HTTP/1.1


@pytest.mark.parametrize("more", [b"", b"x", b"\x81\x05hello", b"GET / HTTP/1.1\r\n\r\n"])
async def test_an_upgrade_to_websocket_is_refused(more: bytes) -> None:
    async with serving(Demo()) as live:
        head, _, text = (await ask(live.port, UPGRADE + more)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 426 ")
    assert b"upgrade: HTTP/1.1" in head
    assert b"connection: upgrade, close" in head
    assert json.loads(text)["error"]["code"] == "no_upgrade"
    assert live.guards.faults == 0


async def test_the_word_websocket_alone_is_no_upgrade() -> None:
    async with serving(Demo()) as live:
        answer = await ask(live.port, get("/", "Upgrade: websocket", "Connection: close"))
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_an_upgrade_to_h2c_is_answered_in_http_1() -> None:
    async with serving(Demo()) as live, await connect(live.port) as client:
        for _ in range(2):
            await client.send_all(get("/", *H2C))
            assert (await read_until(client, b"hello")).startswith(b"HTTP/1.1 200 ")


async def test_a_client_that_proposed_h2c_is_seen_to_leave() -> None:
    app = Demo()
    async with serving(app) as live:
        async with await connect(live.port) as client:
            await client.send_all(get("/ticks", *H2C))
            await app.ticks.send(1)
            await read_until(client, b"data: 1")
        await app.ended.wait()  # the stream is silent: only the reader can see it


async def test_headers_without_end_are_refused() -> None:
    async with serving(Demo()) as live, await connect(live.port) as client:
        assert (await upload(client, b"GET / HTTP/1.1\r\nX: ")).startswith(b"HTTP/1.1 431 ")


async def upload(client: trio.abc.Stream, head: bytes) -> bytes:
    """Send a large body to its end and only then read.

    Most clients look at no answer once a write has failed.
    """
    await client.send_all(head)
    for _ in range(150):
        await client.send_all(bytes(60_000))
    return await read_to_end(client)


TOO_MUCH = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n"


async def test_who_sends_too_much_can_read_why() -> None:
    """A reset would overtake the answer.

    Nothing of what is sent may be left unread when we close.
    """
    async with serving(refusing) as live, await connect(live.port) as client:
        answer = await upload(client, TOO_MUCH)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert answer.endswith(b"too much")


async def test_a_client_that_never_stops_sending_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LINGER_SECONDS", 0.1)
    async with serving(refusing) as live, await connect(live.port) as client:
        await client.send_all(TOO_MUCH)
        with trio.fail_after(5), suppress(trio.BrokenResourceError):
            while True:
                await client.send_all(bytes(1_000))
                await trio.sleep(0.005)


async def refusing(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers without reading."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    await start(send, 413, (b"content-length", b"8"))
    await body(send, b"too much")


async def test_slow_headers_are_cut() -> None:
    async with serving(Demo(), brief()) as live, await connect(live.port) as client:
        await client.send_all(b"GET / HTT")
        assert await read_to_end(client) == b""


# HTTP/2: back-pressure


async def test_a_client_without_window_blocks_the_producer() -> None:
    app = Demo()
    async with serving(app) as live, h2_client(live.port, grant=False) as client:
        number = await client.request(b"/flood")
        await client.until_body(number, lambda body: len(body) >= WINDOW)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert WINDOW <= app.accepted <= WINDOW + BUFFER_HIGH_WATER + len(CHUNK)
        await client.stream.aclose()
        await app.ended.wait()


async def test_window_given_later_sets_the_producer_going_again() -> None:
    app = Demo()
    async with serving(app) as live, h2_client(live.port, grant=False) as client:
        number = await client.request(b"/flood")
        await client.until_body(number, lambda body: len(body) >= WINDOW)
        client.grant = True
        client.h2.increment_flow_control_window(WINDOW)
        client.h2.increment_flow_control_window(WINDOW, number)
        await client.flush()
        await client.until_body(number, lambda body: len(body) >= 10 * WINDOW)


async def test_a_reading_client_gets_everything() -> None:
    async with serving(Demo()) as live, h2_client(live.port) as client:
        first, second = await client.request(b"/big"), await client.request(b"/big")
        assert await client.answer(first) == (200, BIG + b"end")
        assert await client.answer(second) == (200, BIG + b"end")


async def test_a_blocked_stream_does_not_block_its_neighbour() -> None:
    async with serving(Demo()) as live, h2_client(live.port, grant=False) as client:
        client.h2.increment_flow_control_window(10 * WINDOW)
        blocked = await client.request(b"/flood")
        await client.until_body(blocked, lambda body: len(body) >= WINDOW)
        assert await client.answer(await client.request(b"/")) == (200, b"hello")


@pytest.mark.parametrize("path", [b"/flood", b"/deaf"])
async def test_a_blocked_producer_is_let_go_when_the_client_leaves(path: bytes) -> None:
    app = Demo()
    async with serving(app) as live:
        async with h2_client(live.port, grant=False) as client:
            number = await client.request(path)
            await client.until_body(number, lambda body: len(body) >= WINDOW)
            app.enough = app.accepted + 10 * len(CHUNK)
        await app.ended.wait()


async def test_an_answer_waits_its_turn_behind_a_stalled_write() -> None:
    """The flood fills the kernel's buffers.

    The answer to a ping has to queue, and still comes out whole.
    """
    app = Demo(enough=5_000_000)
    async with serving(app) as live, h2_client(live.port) as client:
        number = await client.request(b"/flood")
        client.h2.increment_flow_control_window(10_000_000)
        client.h2.increment_flow_control_window(10_000_000, number)
        await client.flush()
        await app.flooding.wait()
        await trio.testing.wait_all_tasks_blocked(0.1)
        client.h2.ping(b"12345678")
        await client.flush()
        await trio.testing.wait_all_tasks_blocked(0.1)
        await client.until_body(number, lambda body: len(body) == app.enough // 1024 * 1024 + 1024)
        assert any(isinstance(event, h2.events.PingAckReceived) for event in client.seen)


async def test_a_priority_may_come_before_its_request() -> None:
    async with serving(Demo()) as live, h2_client(live.port) as client:
        client.h2.prioritize(1, weight=10)
        assert await client.answer(await client.request(b"/")) == (200, b"hello")


async def test_two_producers_of_one_buffer_both_wake_up() -> None:
    buffer = BoundedStreamBuffer(EventWrapper)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(buffer.push, b"a" * BUFFER_HIGH_WATER)
        nursery.start_soon(buffer.push, b"b" * BUFFER_HIGH_WATER)
        await trio.testing.wait_all_tasks_blocked()
        assert await buffer.pop(0) == b""
        await trio.testing.wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 2
        assert len(await buffer.pop(2 * BUFFER_HIGH_WATER)) == 2 * BUFFER_HIGH_WATER


# HTTP/2: one stream's trouble is its own


async def test_malformed_requests_cost_only_their_stream() -> None:
    app = Demo()
    async with serving(app) as live, h2_client(live.port) as client:
        running = await client.request(b"/ticks")
        assert await client.status(await client.request("/é".encode())) == 400
        assert await client.status(await client.request(b"/", "GÉT".encode())) == 400
        tunnel = [(b":method", b"CONNECT"), (b":authority", b"test:1")]
        assert await client.status(await client.send_head(tunnel, end=False)) == 501
        early = await client.request(b"/early", b"POST", end=False)
        assert await client.answer(early) == (401, b"hello")
        client.h2.send_data(early, b"late", end_stream=True)
        await client.flush()
        await app.ticks.send(1)
        assert await client.until_body(running, bool) == b"data: 1\n\n"
        assert await client.answer(await client.request(b"/")) == (200, b"hello")


async def test_late_data_gives_its_window_back() -> None:
    """Else refused uploads would use up the window that all streams of the connection share."""
    async with serving(Demo()) as live, h2_client(live.port) as client:
        for _ in range(10):
            number = await client.request(b"/early", b"POST", end=False)
            await client.answer(number)
            while client.h2.local_flow_control_window(number) < 16_384:
                assert await client.receive()
            client.h2.send_data(number, b"x" * 16_384, end_stream=True)
            await client.flush()


async def test_a_response_that_stops_half_way_is_reset() -> None:
    """In HTTP/1.1 the connection closes; here the client would wait forever."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        await start(send)
        await body(send, b"half", more=True)
        raise ValueError("no more")

    async with serving(app) as live, h2_client(live.port) as client:
        for _ in range(2):
            number = await client.request()
            await client.until(h2.events.StreamReset, number)
            assert client.bodies[number] == b"half"
    assert live.guards.faults == 0


async def test_websockets_are_not_offered() -> None:
    async with serving(Demo()) as live, h2_client(live.port) as client:
        await client.answer(await client.request(b"/"))
        assert not client.h2.remote_settings.enable_connect_protocol
        assert client.h2.remote_settings.max_concurrent_streams == 100


async def test_many_requests_do_not_end_the_connection() -> None:
    config = hypercorn_config(graceful_seconds=0.05)
    config.keep_alive_max_requests = 2
    app = Demo()
    async with serving(app, config) as live, h2_client(live.port) as client:
        running = await client.request(b"/ticks")
        for _ in range(5):
            await client.answer(await client.request(b"/"))
        await app.ticks.send(1)
        assert await client.until_body(running, bool) == b"data: 1\n\n"


async def test_a_reset_stream_ends_alone() -> None:
    app = Demo()
    async with serving(app) as live, h2_client(live.port) as client:
        number = await client.request(b"/flood")
        await client.until_body(number, lambda body: len(body) > WINDOW)
        client.h2.reset_stream(number)
        await client.flush()
        await app.ended.wait()
        assert await client.answer(await client.request(b"/")) == (200, b"hello")


async def test_a_flood_of_priorities_costs_only_its_connection() -> None:
    async with serving(Demo()) as live:
        async with h2_client(live.port) as client:
            for number in range(1, 4001, 2):
                client.h2.prioritize(number, weight=10)
            await client.flush()
            await read_to_end(client.stream)
        assert b"hello" in await ask(live.port, get("/", "Connection: close"))
    assert live.guards.faults == 1


# HTTP/2: idle connections


async def test_a_preface_and_nothing_more_is_cut() -> None:
    async with serving(Demo(), brief()) as live, h2_client(live.port) as client:
        await read_to_end(client.stream)


async def test_a_connection_whose_streams_were_reset_is_cut() -> None:
    app = Demo()
    async with serving(app, brief()) as live, h2_client(live.port) as client:
        number = await client.request(b"/ticks")
        await client.until(h2.events.ResponseReceived, number)
        client.h2.reset_stream(number)
        await client.flush()
        await read_to_end(client.stream)


async def test_an_open_stream_is_not_idle() -> None:
    app = Demo()
    async with serving(app, brief()) as live, h2_client(live.port) as client:
        number = await client.request(b"/ticks")
        await client.answer(await client.request(b"/"))
        await trio.sleep(0.2)  # longer than the idle time: nothing to wait for, that is the point
        await app.ticks.send(1)
        assert await client.until_body(number, bool) == b"data: 1\n\n"


def test_refusals() -> None:
    good = [(b":method", b"GET"), (b":path", b"/")]
    assert refusal_status(good) is None
    assert refusal_status(good[:1]) == 400
    assert refusal_status(good[1:]) == 400
    assert refusal_status([(b":method", b"connect"), *good[1:]]) == 501
