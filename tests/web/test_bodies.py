"""Large bodies wait until there is room for them, and what nobody wants is not kept."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
from quart import request
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.events import Text
from hermes_trio.runs.admission import BodyBudget
from hermes_trio.web.request import FREE_BYTES
from hermes_trio.web.state import WebOptions
from tests.support.asgi import Exchange
from tests.support.fakes import (
    CHAT,
    OTHER_KEY,
    AppHarness,
    Pause,
    ScriptedAgentFactory,
    ask,
    ask_stream,
    bearer,
    make_harness,
    open_harness,
)

BOB = bearer(OTHER_KEY)
BODY = json.dumps(ask("x" * 200_000)).encode()
SIZE = len(BODY)
FIRST, REST = BODY[:100_000], BODY[100_000:]
DECLARED = {"Content-Length": str(SIZE)}
CHUNKED = {"Transfer-Encoding": "chunked"}
OPTIONS = WebOptions(max_body_bytes=250_000)


def harness_with(limit: int, principals: int = 1, **more: Any) -> AppHarness:
    budget = BodyBudget(limit, principals, wait_seconds=30.0)
    return make_harness(bodies=budget, options=OPTIONS, max_runs=0, **more)


async def begin(harness: AppHarness, stack: AsyncExitStack, headers: Any = DECLARED) -> Exchange:
    """Send the first part of a large body."""
    upload = harness.client.open("POST", CHAT, [FIRST], headers, is_whole=False)
    exchange = await stack.enter_async_context(upload)
    await wait_all_tasks_blocked()
    return exchange


async def finish(*exchanges: Exchange) -> list[int]:
    """Send the rest, and return the statuses."""
    for exchange in exchanges:
        exchange.upload(REST)
    return [(await exchange.end()).status for exchange in exchanges]


class TestWaiting:
    @pytest.mark.parametrize(("headers", "size"), [(DECLARED, SIZE), (CHUNKED, 250_000)])
    async def test_a_body_waits_for_room(self, headers: dict[str, str], size: int) -> None:
        harness = harness_with(int(1.5 * size))
        async with AsyncExitStack() as stack:
            first, second = [await begin(harness, stack, headers) for _ in range(2)]
            assert harness.state.bodies.in_use == size
            assert (await harness.client.send(CHAT, ask())).status == 200  # it is small
            assert await finish(first) == [200]
            await wait_all_tasks_blocked()
            assert harness.state.bodies.in_use == size
            assert await finish(second) == [200]
        assert harness.state.bodies.in_use == 0

    async def test_nothing_more_is_received_meanwhile(self) -> None:
        harness = harness_with(SIZE)
        async with AsyncExitStack() as stack:
            first = await begin(harness, stack)
            parts = [BODY[n : n + 20_000] for n in range(0, SIZE, 20_000)]
            upload = harness.client.open("POST", CHAT, parts, DECLARED)
            second = await stack.enter_async_context(upload)
            await wait_all_tasks_blocked()
            assert second.unreceived == len(parts) - 1
            assert await finish(first) == [200]
            assert (await second.end()).status == 200

    async def test_no_limit(self) -> None:
        harness = harness_with(0)
        async with AsyncExitStack() as stack:
            exchanges = [await begin(harness, stack) for _ in range(5)]
            assert harness.state.bodies.in_use == 5 * SIZE
            assert await finish(*exchanges) == [200] * 5

    async def test_a_body_that_is_larger_than_all_room_takes_all(self) -> None:
        harness = harness_with(100_000)
        async with AsyncExitStack() as stack:
            exchange = await begin(harness, stack)
            assert harness.state.bodies.in_use == 100_000
            assert await finish(exchange) == [200]

    async def test_not_for_ever(self, autojump_clock: MockClock) -> None:
        harness = make_harness(bodies=BodyBudget(SIZE, wait_seconds=10.0), options=OPTIONS)
        async with AsyncExitStack() as stack:
            first = await begin(harness, stack)
            answer = await harness.client.send_raw(CHAT, FIRST, REST, headers=DECLARED)
            assert trio.current_time() >= 10
            assert (answer.status, answer.error["code"]) == (503, "server_overloaded")
            assert (answer.headers["retry-after"], answer.error["type"]) == ("1", "server_error")
            assert await finish(first) == [200]
        assert harness.is_idle
        assert harness.state.bodies.in_use == 0

    async def test_waiting_does_not_count_as_slow_sending(self, mock_clock: MockClock) -> None:
        harness = harness_with(SIZE)
        async with AsyncExitStack() as stack:
            first, second = [await begin(harness, stack) for _ in range(2)]
            mock_clock.jump(15)
            assert await finish(first) == [200]
            await wait_all_tasks_blocked()
            mock_clock.jump(15)  # body_seconds is 20
            assert await finish(second) == [200]

    async def test_a_slow_sender_frees_its_room(self, autojump_clock: MockClock) -> None:
        harness = harness_with(SIZE)
        async with AsyncExitStack() as stack:
            slow = await begin(harness, stack)
            assert (await slow.end()).status == 408
            assert harness.state.bodies.in_use == 0

    async def test_a_client_that_leaves_frees_its_room(self, autojump_clock: MockClock) -> None:
        harness = harness_with(SIZE)
        async with AsyncExitStack() as stack:
            first = await begin(harness, stack)
            async with AsyncExitStack() as others:
                for _ in range(3):
                    await begin(harness, others)
                first.disconnect()
            await first.end()
            last = await begin(harness, stack)
            assert await finish(last) == [200]
        assert harness.state.bodies.in_use == 0


class TestSharing:
    async def test_one_principal_leaves_room_for_others(self, mock_clock: MockClock) -> None:
        harness = harness_with(4 * SIZE, principals=2)
        async with AsyncExitStack() as stack:
            exchanges = [await begin(harness, stack) for _ in range(4)]
            assert harness.state.bodies.in_use == 3 * SIZE
            headers = {**DECLARED, **BOB}
            assert (await harness.client.send_raw(CHAT, FIRST, REST, headers=headers)).status == 200
            mock_clock.jump(30)
            refused = await exchanges[3].end()
            assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")

    async def test_who_has_least_comes_first(self) -> None:
        budget = BodyBudget(10)
        held = budget.claim("ann", 6)
        waiting = [budget.claim("ann", 6), budget.claim("ann", 5), budget.claim("bob", 5)]
        assert not any(claim.granted.is_set() for claim in waiting)
        waiting[0].release()  # it gave up
        other = budget.claim("bob", 4)
        assert not other.granted.is_set()  # it came behind one that does not fit
        held.release()
        assert [claim.granted.is_set() for claim in waiting] == [False, True, True]
        for claim in (*waiting, other):
            claim.release()
            claim.release()
        assert budget.in_use == 0


class TestUnwanted:
    """Of a request that is refused, nothing is kept and no room is taken."""

    @pytest.mark.parametrize("headers", [DECLARED, CHUNKED])
    async def test_a_request_without_a_key(self, headers: dict[str, str]) -> None:
        harness = harness_with(SIZE)
        async with AsyncExitStack() as stack:
            await begin(harness, stack)  # all room is taken
            parts = [FIRST, REST]
            unknown = {**headers, "Authorization": "Bearer nobody"}
            answer = await harness.client.send_raw(CHAT, *parts, headers=unknown)
            assert answer.status == 401

    @pytest.mark.parametrize("headers", [DECLARED, CHUNKED])
    async def test_the_client_of_a_stream_is_seen_to_leave(self, headers: dict[str, str]) -> None:
        """Although it sent a large body that the view did not want."""
        agents = ScriptedAgentFactory([Text("Hi"), Pause()], is_async=True)
        async with open_harness(agents, options=OPTIONS) as harness:
            run_id = (await harness.client.send("/v1/runs", {"input": "Hello"})).json["run_id"]
            path = f"/v1/runs/{run_id}/events"
            async with harness.client.open("GET", path, [FIRST, REST], headers) as exchange:
                await exchange.block()
            assert harness.state.bodies.in_use == 0
            await harness.client.send(f"/v1/runs/{run_id}/stop", {})


class TestQuart:
    """Views of an embedding program read bodies in their own way."""

    @pytest.mark.parametrize("headers", [DECLARED, CHUNKED])
    @pytest.mark.parametrize("way", ["data", "json", "await", "iterate", "twice"])
    async def test_a_large_body(self, way: str, headers: dict[str, str]) -> None:
        harness = harness_with(10 * SIZE)

        @harness.app.post("/size")
        async def count() -> str:
            if way == "json":
                return str(len(json.dumps(await request.get_json())))
            if way == "await":
                return str(len(await request.body))
            if way == "iterate":
                return str(sum([len(part) async for part in request.body]))
            if way == "twice":
                await request.get_data()
            return str(len(await request.get_data()))

        answer = await harness.client.send_raw("/size", FIRST, REST, headers=headers)
        assert answer.body == str(SIZE).encode()
        assert harness.state.bodies.in_use == 0

    async def test_a_body_that_comes_too_late_for_its_response(self) -> None:
        harness = harness_with(10 * SIZE)
        sizes: list[int] = []

        @harness.app.post("/late")
        async def late() -> Any:
            body = request.body

            async def stream() -> Any:
                yield "begun"
                sizes.extend([len(part) async for part in body])

            return stream()

        async with harness.client.open("POST", "/late", [b"x" * 100], is_whole=False) as exchange:
            await exchange.started()
            exchange.upload(b"y" * 100)
            assert (await exchange.end()).body == b"begun"
        assert sum(sizes) == 200


async def test_a_large_body_is_not_kept_while_its_run_goes_on() -> None:
    pause, kept = Pause(), list[int]()
    body = json.dumps(ask_stream("x" * FREE_BYTES)).encode()
    harness = harness_with(10 * SIZE, script=[pause, Text("Hi")])

    @harness.app.after_request
    async def look(response: Any) -> Any:
        kept.append(len(await request.get_data()))
        return response

    async with harness.client.open("POST", CHAT, [body]) as exchange:
        await pause.wait_reached()
        assert harness.state.bodies.in_use == 0
        pause.go()
        assert (await exchange.end()).status == 200
    small = json.dumps(ask()).encode()
    assert (await harness.client.send_raw(CHAT, small)).status == 200
    assert kept == [0, len(small)]


async def test_memory_is_returned_when_the_last_large_body_has_gone() -> None:
    calls: list[int] = []
    budget = BodyBudget(10 * SIZE, return_memory=lambda: calls.append(budget.in_use))
    harness = make_harness(bodies=budget)
    async with AsyncExitStack() as stack:
        first = await begin(harness, stack)
        assert (await harness.client.send_raw(CHAT, BODY, headers=DECLARED)).status == 200
        assert (await harness.client.send(CHAT, ask())).status == 200
        assert calls == []
        assert await finish(first) == [200]
    assert calls == [0]
