"""Floods of cheap HTTP/2 frames: the client loses its connection, the others lose no time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import h2.connection
import h2.errors
import h2.events
import pytest
import trio

from hermes_trio.server.guards import http2
from hermes_trio.server.guards.http2 import (
    CONTROL_FRAMES,
    REQUEST_WORK,
    WORK_PER_TURN,
    FloodBudget,
)
from tests.server.apps import Demo, Receive, Send, body, lifespan, start
from tests.support.in_process_server import serving
from tests.support.raw_http import H2Client, h2_client

STREAMS = 100  # that Hypercorn allows at a time
RESETS = 2 * STREAMS  # that a client may make at once
HEAD = [
    (b":method", b"GET"),
    (b":path", b"/"),
    (b":scheme", b"http"),
    (b":authority", b"localhost"),
]


class Counting:
    """Waits in every request; notes the turn of the scheduler in which each began."""

    def __init__(self) -> None:
        self.turn = 0
        self.began: list[int] = []

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        self.began.append(self.turn)
        while (await receive())["type"] != "http.disconnect":
            pass

    async def count_turns(self) -> None:
        while True:
            self.turn += 1
            await trio.lowlevel.checkpoint()


async def closing_code(client: H2Client) -> int | None:
    """The error code with which the server ends the connection."""
    while await client.receive():
        pass
    codes = [e.error_code for e in client.seen if isinstance(e, h2.events.ConnectionTerminated)]
    return codes[-1] if codes else None


def open_and_reset(connection: h2.connection.H2Connection) -> None:
    number = connection.get_next_available_stream_id()
    connection.send_headers(number, HEAD, end_stream=True)
    connection.reset_stream(number)


def test_a_budget_is_used_up_and_refilled() -> None:
    budget = FloodBudget(capacity=2, per_second=0.5)
    assert [budget.spend(10.0) for _ in range(3)] == [True, True, False]
    assert not budget.spend(11.0)  # -1 + 0.5 - 1
    assert budget.spend(20.0)
    budget.earn(100)
    assert [budget.spend(20.0) for _ in range(3)] == [True, True, False]


async def test_requests_that_are_reset_at_once_are_never_served() -> None:
    app = Counting()
    async with serving(app) as live, h2_client(live.port) as client:
        for _ in range(RESETS):
            open_and_reset(client.h2)
        await client.flush()
        number = await client.request()  # the connection is still good
        while len(app.began) < 1:
            await trio.lowlevel.checkpoint()
        client.h2.reset_stream(number)
        # Slices of the input may part a request from its reset.
        assert len(app.began) < RESETS / 10


async def test_rapid_resets_end_the_connection() -> None:
    app = Counting()
    async with serving(app) as live, h2_client(live.port) as client:
        for _ in range(10 * RESETS):
            open_and_reset(client.h2)
        await client.flush()
        assert await closing_code(client) == h2.errors.ErrorCodes.ENHANCE_YOUR_CALM
        assert len(app.began) < RESETS / 10


async def test_resets_of_requests_that_have_begun_count_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http2, "RESETS_PER_SECOND", 0.0)  # however long this takes
    app = Counting()
    async with serving(app) as live, h2_client(live.port) as client:
        for count in range(1, RESETS + 1):
            number = await client.request()
            while len(app.began) < count:
                await trio.lowlevel.checkpoint()
            client.h2.reset_stream(number)
            await client.flush()
        open_and_reset(client.h2)
        await client.flush()
        assert await closing_code(client) == h2.errors.ErrorCodes.ENHANCE_YOUR_CALM


async def test_other_tasks_have_their_turn_between_requests() -> None:
    app = Counting()
    async with serving(app) as live, h2_client(live.port) as client, trio.open_nursery() as nursery:
        nursery.start_soon(app.count_turns)
        for _ in range(STREAMS - 1):
            number = client.h2.get_next_available_stream_id()
            client.h2.send_headers(number, HEAD, end_stream=True)
        await client.flush()
        while len(app.began) < STREAMS - 1:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert max(Counter(app.began).values()) <= WORK_PER_TURN / REQUEST_WORK


def ping(connection: h2.connection.H2Connection) -> None:
    connection.ping(b"12345678")


def change_settings(connection: h2.connection.H2Connection) -> None:
    connection.update_settings({})


def update_window(connection: h2.connection.H2Connection) -> None:
    connection.increment_flow_control_window(1)


def reprioritize(connection: h2.connection.H2Connection) -> None:
    connection.prioritize(1, weight=16, depends_on=0, exclusive=False)


@pytest.mark.parametrize("act", [ping, change_settings, update_window, reprioritize])
async def test_a_flood_of_control_frames_ends_the_connection(
    act: Callable[[h2.connection.H2Connection], None],
) -> None:
    async with serving(Demo()) as live, h2_client(live.port) as client:
        for _ in range(2 * CONTROL_FRAMES):
            act(client.h2)
        await client.flush()
        assert await closing_code(client) == h2.errors.ErrorCodes.ENHANCE_YOUR_CALM


async def test_a_flood_of_empty_data_ends_the_connection() -> None:
    async with serving(Counting()) as live, h2_client(live.port) as client:
        number = await client.request(method=b"POST", end=False)
        for _ in range(2 * CONTROL_FRAMES):
            client.h2.send_data(number, b"")
        await client.flush()
        assert await closing_code(client) == h2.errors.ErrorCodes.ENHANCE_YOUR_CALM


class Parts:
    """Sends many small parts, each after the client has taken the one before."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.taken = trio.Semaphore(0)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        await start(send)
        for _ in range(self.count):
            await body(send, b"x", more=True)
            await self.taken.acquire()
        await body(send, b"")


async def test_window_updates_for_received_data_are_no_flood() -> None:
    """Some clients grant window for every frame, for the stream and for the connection."""
    app = Parts(CONTROL_FRAMES)
    async with serving(app) as live, h2_client(live.port, grant=False) as client:
        number = await client.request()
        for count in range(1, app.count + 1):
            await client.until_body(number, lambda seen, count=count: len(seen) >= count)  # type: ignore[misc]
            client.h2.increment_flow_control_window(1, number)
            client.h2.increment_flow_control_window(1)
            await client.flush()
            app.taken.release()
        assert await client.answer(number) == (200, b"x" * app.count)
