"""``GET /v1/runs/{run_id}/events``.

Any number of readers, each from any point on, all with the same bytes.
"""

from __future__ import annotations

import random

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.events import Text
from hermes_trio.core.records import Retention
from tests.support.asgi import Exchange, HttpResponse, real_timeout
from tests.support.fakes import EPOCH, AppHarness, Pause, ScriptedAgentFactory, Step
from tests.support.responses_api import RICH, idle_harness
from tests.support.run_stream_rules import CLOSED, blocks_of, check_whole, event_of
from tests.support.runs_api import RUNS, followed, kinds, shown, started


async def events(harness: AppHarness, run_id: str, last: str = "", query: str = "") -> HttpResponse:
    header = {"Last-Event-ID": last} if last else {}
    with real_timeout():
        return await harness.client.get(f"{RUNS}/{run_id}/events{query}", header)


async def test_the_headers_of_a_stream() -> None:
    async with idle_harness() as harness:
        headers = (await events(harness, await started(harness))).headers
        assert headers["content-type"] == "text/event-stream"
        assert headers["cache-control"] == "no-cache, no-transform"
        assert headers["x-accel-buffering"] == "no"


async def test_after_every_event_of_an_ended_run() -> None:
    async with idle_harness(RICH) as harness:
        run_id = await started(harness)
        unbroken = await events(harness, run_id)
        check_whole(unbroken.body)
        frames = [f"{block}\n\n".encode() for block in blocks_of(unbroken.body)]
        for n in range(-1, len(frames) - 1):
            by_query = await events(harness, run_id, query=f"?last_seq={n}")
            assert b"".join(frames[: n + 1]) + by_query.body == unbroken.body
            by_header = await events(harness, run_id, str(n), "?last_seq=0")  # the header is newer
            is_all = n == len(frames) - 2
            assert by_header.status == (204 if is_all else 200)
            assert by_header.body == (b"" if is_all else by_query.body)


async def test_a_browser_that_has_everything_is_told_not_to_come_again() -> None:
    async with idle_harness() as harness:
        run_id = await started(harness)
        last = (await followed(harness, run_id))[-1]["seq"]
        assert (await events(harness, run_id, str(last))).status == 204
        assert blocks_of((await events(harness, run_id, query=f"?last_seq={last}")).body) == [
            CLOSED
        ]


async def test_a_client_that_knows_of_more_than_there_is_hears_the_end() -> None:
    """It was told of events that died with the process before they were logged."""
    async with idle_harness() as harness:
        run_id = await started(harness)
        last = (await followed(harness, run_id))[-1]
        for answer in (
            await events(harness, run_id, "99"),
            await events(harness, run_id, query="?last_seq=99"),
        ):
            [end, closed] = blocks_of(answer.body)
            assert (event_of(end), closed) == (last, CLOSED)


@pytest.mark.parametrize("value", ["x", "1.5", "-2", "1e3", "9" * 30, "+1"])
async def test_a_bad_starting_point(value: str) -> None:
    async with idle_harness() as harness:
        run_id = await started(harness)
        by_query = await events(harness, run_id, query=f"?last_seq={value}")
        assert (by_query.status, by_query.error["param"]) == (400, "last_seq")
        by_header = await events(harness, run_id, value)
        assert (by_header.status, by_header.error["param"]) == (400, "Last-Event-ID")


async def test_events_that_are_not_kept_any_longer() -> None:
    async with idle_harness() as harness:
        run_id = await started(harness)
        await followed(harness, run_id)
        await harness.until_idle()
        await harness.store.purge(Retention(log_seconds=60), EPOCH + 3600)
        answer = await events(harness, run_id)
        assert (answer.status, answer.error["code"]) == (404, "events_expired")
        assert (await shown(harness, run_id))["output"] == "Hello world"


async def test_a_comment_after_silence(mock_clock: MockClock) -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([Text("Hi"), pause], is_async=True)) as harness:
        run_id = await started(harness)
        async with harness.client.open("GET", f"{RUNS}/{run_id}/events") as exchange:
            await pause.wait_reached()
            for seconds, count in ((9.75, 0), (0.25, 1), (10, 2)):
                await wait_all_tasks_blocked()
                mock_clock.jump(seconds)
                await wait_all_tasks_blocked()
                assert exchange.raw.count(b": keepalive\n\n") == count
            pause.go()
            check_whole((await exchange.end()).body)


# -- ten readers that come and go --


class Wanderer:
    """Reads a few events, leaves, and comes back for the rest, until the stream is closed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.blocks: list[str] = []
        self.visits = 0

    async def read(self, harness: AppHarness, run_id: str) -> None:
        while CLOSED not in self.blocks:
            for _ in range(self._random.randrange(20)):
                await trio.lowlevel.checkpoint()
            await self._visit(harness, run_id)

    async def _visit(self, harness: AppHarness, run_id: str) -> None:
        self.visits += 1
        by_header = self._random.random() < 0.5 and bool(self.blocks)
        last = event_of(self.blocks[-1])["seq"] if self.blocks else -1
        query = "" if by_header else f"?last_seq={last}"
        header = {"Last-Event-ID": str(last)} if by_header else {}
        async with harness.client.open(
            "GET", f"{RUNS}/{run_id}/events{query}", headers=header
        ) as exchange:
            await exchange.started()
            if exchange.answer.status == 204:
                self.blocks.append(CLOSED)
                return
            await self._read_some(exchange)

    async def _read_some(self, exchange: Exchange) -> None:
        for _ in range(self._random.randrange(12)):
            self.blocks.append(await exchange.block())
            if self.blocks[-1] == CLOSED:
                return


@pytest.mark.parametrize("seed", range(6))
async def test_readers_that_come_and_go_all_hear_the_same(seed: int) -> None:
    pauses = [Pause() for _ in range(4)]
    script: list[Step] = []
    for n, pause in enumerate(pauses):
        script += [Text(f"{n} "), *RICH, pause, *(Text(f"{m} ") for m in range(15))]
    wanderers = [Wanderer(seed * 100 + n) for n in range(10)]
    agents = ScriptedAgentFactory(script, is_async=seed % 2 == 0)
    async with idle_harness(agents) as harness:
        run_id = await started(harness)
        async with trio.open_nursery() as nursery:
            for wanderer in wanderers:
                nursery.start_soon(wanderer.read, harness, run_id)
            for pause in pauses:
                await pause.wait_reached()
                await wait_all_tasks_blocked()
                pause.go()
        unbroken = blocks_of((await events(harness, run_id)).body)
        check_whole("".join(f"{block}\n\n" for block in unbroken).encode())
        assert all(wanderer.blocks == unbroken for wanderer in wanderers)
        assert sum(wanderer.visits for wanderer in wanderers) > 20


async def test_a_reader_that_does_not_read_slows_nobody() -> None:
    pause = Pause()
    script: list[Step] = [pause, *(Text(f"{n} ") for n in range(500))]
    async with idle_harness(ScriptedAgentFactory(script, is_async=True)) as harness:
        run_id = await started(harness)
        async with harness.client.open("GET", f"{RUNS}/{run_id}/events") as slow:
            await slow.started()
            slow.stall()
            pause.go()
            assert kinds(await followed(harness, run_id))[-1] == "run.completed"
            slow.read_on()
            check_whole((await slow.end()).body)
