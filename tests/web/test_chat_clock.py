"""Silence, slow clients and time limits, with a clock that the tests move by hand.

Agents are made in real threads, which such a clock does not wait for: every jump comes after the
point was reached from which it counts.
"""

from __future__ import annotations

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.events import Reasoning, Text, ToolOutput, ToolStarted
from hermes_trio.core.outcome import Reason
from hermes_trio.runs.tracker import RunLimits
from hermes_trio.web.state import WebOptions
from tests.support.asgi import Exchange
from tests.support.chat_api import failure, finish, reason, said
from tests.support.dialect_frames import parse
from tests.support.fakes import (
    CHAT,
    Pause,
    ScriptedAgentFactory,
    Step,
    ask,
    ask_stream,
    make_harness,
    open_harness,
)

SESSION = {"X-Hermes-Session-Id": "s"}
KEEPALIVE = b": keepalive\n\n"


async def keepalives_after(clock: MockClock, exchange: Exchange, seconds: float) -> int:
    """How many comments have come when so much time has passed at once."""
    await wait_all_tasks_blocked()
    clock.jump(seconds)
    await wait_all_tasks_blocked()
    return exchange.raw.count(KEEPALIVE)


async def test_a_comment_after_silence_before_the_agent_exists(mock_clock: MockClock) -> None:
    factory_pause = Pause()
    async with (
        open_harness(ScriptedAgentFactory([Text("Hi")], factory_pause=factory_pause)) as harness,
        harness.client.post(CHAT, ask_stream()) as exchange,
    ):
        await factory_pause.wait_reached()
        assert await keepalives_after(mock_clock, exchange, 9.75) == 0
        assert await keepalives_after(mock_clock, exchange, 0.25) == 1
        assert await keepalives_after(mock_clock, exchange, 10) == 2
        factory_pause.go()
        assert said(await exchange.end()) == "Hi"


async def test_a_comment_after_silence_in_the_middle(mock_clock: MockClock) -> None:
    first, second = Pause(), Pause()
    agents = ScriptedAgentFactory([first, Text("One "), second, Text("two")], is_async=True)
    async with (
        open_harness(agents, options=WebOptions(keepalive_seconds=3)) as harness,
        harness.client.post(CHAT, ask_stream()) as exchange,
    ):
        await first.wait_reached()
        assert await keepalives_after(mock_clock, exchange, 2.75) == 0
        first.go()
        await exchange.content("One ")
        assert (
            await keepalives_after(mock_clock, exchange, 2.75) == 0
        )  # counted from the last write
        assert await keepalives_after(mock_clock, exchange, 0.25) == 1
        second.go()
        answer = await exchange.end()
    assert said(answer) == "One two"
    assert [frame.comment for frame in answer.frames if frame.comment] == ["keepalive"]


async def test_output_that_is_not_shown_is_silence(mock_clock: MockClock) -> None:
    first, second = Pause(), Pause()
    script: list[Step] = [
        ToolStarted("c", "t"),
        first,
        ToolOutput("c", "building"),
        second,
        Text("."),
    ]
    async with (
        open_harness(ScriptedAgentFactory(script, is_async=True)) as harness,
        harness.client.post(CHAT, ask_stream()) as exchange,
    ):
        await first.wait_reached()
        assert await keepalives_after(mock_clock, exchange, 6) == 0
        first.go()
        await second.wait_reached()
        assert await keepalives_after(mock_clock, exchange, 4) == 1


async def test_whole_answers_have_no_comments(mock_clock: MockClock) -> None:
    pause = Pause()
    harness = make_harness(ScriptedAgentFactory([pause, Text("Hi")], is_async=True))
    async with harness.client.post(CHAT, ask()) as exchange:
        await pause.wait_reached()
        assert await keepalives_after(mock_clock, exchange, 100) == 0
        pause.go()
        assert (await exchange.end()).json["choices"][0]["message"]["content"] == "Hi"


async def test_a_reader_that_stops_reading_is_given_up(mock_clock: MockClock) -> None:
    first, second, third = Pause(), Pause(), Pause()
    more = [
        event for n in range(1, 10) for event in (Text(f"{n} "), Reasoning("."))
    ]  # of two kinds: not one piece
    harness = make_harness(
        ScriptedAgentFactory([first, Text("0 "), second, *more, third], is_async=True),
        limits=RunLimits(stall=30),
    )
    async with harness.client.post(CHAT, ask_stream("Go"), SESSION) as exchange:
        await first.wait_reached()
        exchange.stall()
        first.go()
        await second.wait_reached()
        await (
            wait_all_tasks_blocked()
        )  # the first piece waits to be read; now there is more behind it
        second.go()
        await wait_all_tasks_blocked()
        mock_clock.jump(29.75)
        await wait_all_tasks_blocked()
        assert harness.ends == []
        mock_clock.jump(0.25)
        await wait_all_tasks_blocked()
        assert harness.ends == [("incomplete", "stalled_reader")]
        assert harness.is_idle  # the run is over, although the socket still holds the request
        assert harness.agents.exits == ["Cancelled"]
        exchange.read_on()
        frames = parse((await exchange.end()).body)
    assert frames[-1].data == "[DONE]"
    assert frames[-3].data["error"]["code"] == "stalled_reader"  # should it read on, it hears why
    assert await harness.transcript("s") == [("user", "Go"), ("assistant", "0 1 2 3 4 5 6 7 8 9 ")]


async def test_a_slow_reader_loses_nothing(mock_clock: MockClock) -> None:
    pause = Pause()
    harness = make_harness(
        ScriptedAgentFactory([pause, *(Text(f"{n} ") for n in range(1_000))], is_async=True)
    )
    async with harness.client.post(CHAT, ask_stream()) as exchange:
        await pause.wait_reached()
        exchange.stall()
        pause.go()
        await wait_all_tasks_blocked()
        mock_clock.jump(20)
        exchange.read_on()
        assert said(await exchange.end()) == "".join(f"{n} " for n in range(1_000))


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_a_time_limit_is_told(mock_clock: MockClock, is_async: bool) -> None:
    pause = Pause()
    harness = make_harness(
        ScriptedAgentFactory([Text("Half"), pause], None, is_async), limits=RunLimits(run=7)
    )
    async with harness.client.post(CHAT, ask_stream("Go"), SESSION) as exchange:
        await pause.wait_reached()
        await exchange.content("Half")
        mock_clock.jump(7)
        answer = await exchange.end()
    assert reason(answer) == "error"
    assert failure(answer)["type"] == "timeout"
    assert finish(answer)["hermes"]["reason"] == "timeout"
    assert harness.ends == [("incomplete", "timeout")]
    assert await harness.transcript("s") == [("user", "Go"), ("assistant", "Half")]
    assert harness.is_idle


async def test_a_time_limit_in_a_whole_answer(mock_clock: MockClock) -> None:
    pause = Pause()
    harness = make_harness(
        ScriptedAgentFactory([Text("Half"), pause], is_async=True), limits=RunLimits(run=7)
    )
    async with harness.client.post(CHAT, ask("Go")) as exchange:
        await pause.wait_reached()
        mock_clock.jump(7)
        answer = await exchange.end()
    assert answer.json["choices"][0]["message"]["content"] == "Half"
    assert answer.json["hermes"]["reason"] == "timeout"
    assert answer.headers["x-hermes-partial"] == "true"


async def test_a_server_that_stops_says_so_in_the_stream() -> None:
    pause = Pause()
    harness = make_harness([Text("Half"), pause])
    async with harness.client.post(CHAT, ask_stream("Go"), SESSION) as exchange:
        await pause.wait_reached()
        await exchange.content("Half")
        harness.state.services.registry.stop_all(Reason.SERVER_SHUTDOWN)
        answer = await exchange.end()
    assert finish(answer)["hermes"]["reason"] == "server_shutdown"
    assert harness.agents.interrupts == ["server_shutdown"]
    assert await harness.transcript("s") == [("user", "Go"), ("assistant", "Half")]


async def test_a_body_that_takes_too_long(mock_clock: MockClock) -> None:
    harness = make_harness(options=WebOptions(body_seconds=20))
    async with harness.client.open("POST", CHAT, [b"{"], is_whole=False) as exchange:
        await wait_all_tasks_blocked()
        mock_clock.jump(19.75)
        exchange.upload(b" ", more=True)  # a drop now and then changes nothing
        await wait_all_tasks_blocked()
        assert exchange.answer.status == 0
        mock_clock.jump(0.25)
        answer = await exchange.end()
    assert answer.status == 408
    assert answer.error["code"] == "request_timeout"
    assert harness.is_idle
