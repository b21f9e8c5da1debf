"""A stream that is cut and picked up again is the unbroken one, byte for byte."""

from __future__ import annotations

import random
import re

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.dialects.wire import DONE
from hermes_trio.core.events import Text
from hermes_trio.core.records import Retention
from tests.support.asgi import HttpResponse
from tests.support.fakes import EPOCH, AppHarness, Pause, ScriptedAgentFactory, Step
from tests.support.responses_api import (
    RESPONSES,
    RICH,
    created,
    events,
    final,
    get,
    idle_harness,
    stream,
)

NUMBER = re.compile(rb'"sequence_number": (\d+)}$')


def blocks(raw: bytes) -> list[bytes]:
    """The frames of a stream, ``[DONE]`` included."""
    return [block + b"\n\n" for block in raw.split(b"\n\n")[:-1]]


async def resumed(harness: AppHarness, response_id: str, after: int | None) -> HttpResponse:
    more = "" if after is None else f"&starting_after={after}"
    return await harness.client.get(f"{RESPONSES}/{response_id}?stream=true{more}")


def last_number(raw: bytes) -> int | None:
    """What a client that got so many bytes knows: the number of the last whole event."""
    whole = raw[: raw.rfind(b"\n\n") + 2]
    numbers = [NUMBER.search(block.rstrip()) for block in blocks(whole)]
    return max((int(found[1]) for found in numbers if found), default=None)


async def test_after_every_event_of_an_ended_stream() -> None:
    async with idle_harness(RICH) as harness:
        answer = await harness.client.send(RESPONSES, stream())
        response_id, unbroken = final(answer)["id"], blocks(answer.body)
        assert (await resumed(harness, response_id, None)).body == answer.body
        for n in range(-1, len(unbroken) - 1):
            rest = await resumed(harness, response_id, n)
            assert rest.headers["content-type"] == "text/event-stream"
            assert b"".join(unbroken[: n + 1]) + rest.body == answer.body
        ahead = await resumed(harness, response_id, len(unbroken) + 7)
        assert ahead.body == unbroken[-1] == DONE


async def test_cut_at_any_byte() -> None:
    async with idle_harness(RICH) as harness:
        answer = await harness.client.send(RESPONSES, stream())
        response_id, rng = final(answer)["id"], random.Random(3)
        for cut in rng.sample(range(len(answer.body)), 60):
            number = last_number(answer.body[:cut])
            kept = b"" if number is None else b"".join(blocks(answer.body)[: number + 1])
            rest = await resumed(harness, response_id, number)
            assert kept + rest.body == answer.body


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_many_readers_after_every_event_while_it_runs(is_async: bool) -> None:
    """All readers attach in the middle of the run; each gets exactly what it lacks."""
    pause = Pause()
    script: list[Step] = [*RICH[:5], pause, *RICH[5:]]
    answers: dict[int, HttpResponse] = {}

    async def follow(harness: AppHarness, response_id: str, after: int) -> None:
        answers[after] = await resumed(harness, response_id, after)

    async with idle_harness(ScriptedAgentFactory(script, None, is_async)) as harness:
        async with (
            harness.client.post(RESPONSES, stream()) as exchange,
            trio.open_nursery() as nursery,
        ):
            response_id = await created(exchange)
            await pause.wait_reached()
            for after in range(-1, 40):
                nursery.start_soon(follow, harness, response_id, after)
            await wait_all_tasks_blocked()
            pause.go()
            answer = await exchange.end()
        unbroken = blocks(answer.body)
        count = len(events(answer))
        assert 30 < count < max(answers)
        for after, rest in answers.items():
            kept = unbroken[: min(after + 1, count)]
            assert b"".join(kept) + rest.body == answer.body


async def test_a_slow_reader_slows_nobody() -> None:
    pause = Pause()
    script: list[Step] = [pause, *(Text(f"{n} ") for n in range(500))]
    async with (
        idle_harness(ScriptedAgentFactory(script, is_async=True)) as harness,
        harness.client.post(RESPONSES, stream()) as exchange,
    ):
        response_id = await created(exchange)
        async with harness.client.open("GET", f"{RESPONSES}/{response_id}?stream=true") as slow:
            await slow.started()
            slow.stall()
            pause.go()
            answer = await exchange.end()  # although the other does not read
            assert final(answer)["status"] == "completed"
            assert not slow.over.is_set()
            slow.read_on()
            assert (await slow.end()).body == answer.body


async def test_a_reader_that_leaves_ends_nothing() -> None:
    pause = Pause()
    async with (
        idle_harness(
            ScriptedAgentFactory([Text("Hi"), pause, Text("!")], is_async=True)
        ) as harness,
        harness.client.post(RESPONSES, stream()) as exchange,
    ):
        response_id = await created(exchange)
        async with harness.client.open("GET", f"{RESPONSES}/{response_id}?stream=true") as other:
            await other.started()
        await wait_all_tasks_blocked()
        pause.go()
        assert final(await exchange.end())["status"] == "completed"


async def test_a_second_reader_keeps_the_run_going() -> None:
    pause = Pause()
    async with (
        idle_harness(
            ScriptedAgentFactory([Text("Hi"), pause, Text("!")], is_async=True)
        ) as harness,
        harness.client.post(RESPONSES, stream()) as exchange,
    ):
        response_id = await created(exchange)
        async with harness.client.open("GET", f"{RESPONSES}/{response_id}?stream=true") as other:
            await other.started()
            exchange.disconnect()
            await exchange.end()
            await wait_all_tasks_blocked()
            pause.go()
            assert final(await other.end())["status"] == "completed"


async def test_events_that_are_not_kept_any_longer() -> None:
    async with idle_harness(RICH) as harness:
        told = final(await harness.client.send(RESPONSES, stream()))
        await harness.until_idle()  # as long as the run is in memory, so are its events
        await harness.store.purge(Retention(log_seconds=60), EPOCH + 3600)
        answer = await resumed(harness, told["id"], 3)
        assert (answer.status, answer.error["code"]) == (404, "events_expired")
        assert (await get(harness, told["id"]))["status"] == "completed"


@pytest.mark.parametrize(
    "value", ["x", "1.5", "-2", "--5", "-", "1e3", "9" * 19, "9" * 30, "1%00", "+1"]
)
async def test_a_bad_starting_point(value: str) -> None:
    async with idle_harness() as harness:
        told = final(await harness.client.send(RESPONSES, stream()))
        answer = await harness.client.get(
            f"{RESPONSES}/{told['id']}?stream=true&starting_after={value}"
        )
        assert (answer.status, answer.error["param"]) == (400, "starting_after")


async def test_nothing_to_resume() -> None:
    async with idle_harness() as harness:
        answer = await harness.client.get(f"{RESPONSES}/resp_x?stream=true")
        assert (answer.status, answer.error["code"]) == (404, "response_not_found")
