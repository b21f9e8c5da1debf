"""A client that leaves.

At every point of a turn the agent is called off, and what was said is kept.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.events import Text, ToolCompleted, ToolOutput, ToolStarted
from tests.support.asgi import Exchange, real_timeout
from tests.support.chat_api import checked
from tests.support.fakes import (
    CHAT,
    AppHarness,
    Pause,
    ScriptedAgentFactory,
    Step,
    ask,
    ask_stream,
    make_harness,
)
from tests.support.responses_api import idle_harness

SESSION = {"X-Hermes-Session-Id": "s"}
POLICY = "X-Hermes-On-Disconnect"
BODIES = [ask, ask_stream]
GONE = ("incomplete", "client_disconnected")

# What the agent does, and what the transcript holds when the client leaves after it.
TURN: list[tuple[Step, list[tuple[str, str]]]] = [
    (None, []),
    (Text("One "), [("assistant", "One ")]),
    (Text("two. "), [("assistant", "One two. ")]),
    (
        ToolStarted("c", "terminal", {"command": "make"}),
        [("assistant", "One two. "), ("tool", "[cancelled before it ended]")],
    ),
    (
        ToolOutput("c", "half"),
        [("assistant", "One two. "), ("tool", "half\n[cancelled before it ended]")],
    ),
    (ToolCompleted("c", "whole"), [("assistant", "One two. "), ("tool", "whole")]),
    (Text("Done."), [("assistant", "One two. "), ("tool", "whole"), ("assistant", "Done.")]),
]


async def leave(exchange: Exchange, harness: AppHarness) -> None:
    """Disconnect, and see that nothing is left."""
    exchange.disconnect()
    await exchange.end()
    assert harness.is_idle


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("steps", range(1, len(TURN) + 1))
async def test_leaving_after_every_step(steps: int, body: Any, is_async: bool) -> None:
    pause = Pause()
    script = [step for step, _ in TURN]
    harness = make_harness(
        ScriptedAgentFactory([*script[:steps], pause, *script[steps:]], "Done.", is_async)
    )
    async with harness.client.post(CHAT, body("Go"), SESSION) as exchange:
        await pause.wait_reached()
        await leave(exchange, harness)
    assert harness.ends == [GONE]
    assert await harness.transcript("s") == [("user", "Go"), *TURN[steps - 1][1]]
    assert harness.agents.interrupts == ([] if is_async else ["client_disconnected"])
    assert harness.agents.exits == (["Cancelled"] if is_async else [""])


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
@pytest.mark.parametrize("body", BODIES)
async def test_leaving_when_the_answer_waits_to_be_sent(body: Any, is_async: bool) -> None:
    """A run that ended is complete, whatever the socket does next."""
    pause = Pause()
    harness = make_harness(ScriptedAgentFactory([Text("All"), pause], None, is_async))
    async with harness.client.post(CHAT, body("Go"), SESSION) as exchange:
        await pause.wait_reached()
        await wait_all_tasks_blocked()  # what was said is on its way; the rest will not be read
        exchange.stall()
        pause.go()
        with real_timeout():
            while not harness.ends:
                await trio.lowlevel.checkpoint()
        await leave(exchange, harness)
    assert harness.ends == [("completed", "")]
    assert harness.agents.interrupts == []
    assert await harness.transcript("s") == [("user", "Go"), ("assistant", "All")]


async def test_leaving_after_the_finish_frame() -> None:
    harness = make_harness([Text("All")])
    async with harness.client.post(CHAT, ask_stream("Go"), SESSION) as exchange:
        while not checked(await exchange.frame())["choices"][0]["finish_reason"]:
            pass
        await leave(exchange, harness)
    assert harness.ends == [("completed", "")]


@pytest.mark.parametrize("body", BODIES)
async def test_leaving_while_the_agent_is_made(body: Any) -> None:
    factory_pause = Pause()
    harness = make_harness(ScriptedAgentFactory([Text("never")], factory_pause=factory_pause))
    async with harness.client.post(CHAT, body("Go"), SESSION) as exchange:
        await factory_pause.wait_reached()
        exchange.disconnect()
        await wait_all_tasks_blocked()
        assert not exchange.over.is_set()  # the factory has its grace period
        factory_pause.go()
        await exchange.end()
        assert harness.is_idle
    assert harness.agents.exits == []  # the agent was made, and never ran
    assert harness.ends == [GONE]
    assert await harness.transcript("s") == [("user", "Go")]


@pytest.mark.parametrize("body", BODIES)
async def test_a_thread_that_does_not_end_keeps_its_slot(body: Any, mock_clock: MockClock) -> None:
    factory_pause = Pause()
    harness = make_harness(ScriptedAgentFactory([Text("never")], factory_pause=factory_pause))
    async with harness.client.post(CHAT, body("Go"), SESSION) as exchange:
        await factory_pause.wait_reached()
        exchange.disconnect()
        await wait_all_tasks_blocked()
        mock_clock.jump(5)  # the grace period
        await exchange.end()
        assert len(harness.state.services.registry) == 0
        assert harness.state.admission.in_use == 1
        factory_pause.go()
        await harness.until_idle()
    assert harness.ends == [GONE]


async def test_leaving_before_the_body_is_complete() -> None:
    harness = make_harness()
    async with harness.client.open(
        "POST", CHAT, [b'{"messages": '], SESSION, is_whole=False
    ) as exchange:
        await wait_all_tasks_blocked()
        assert harness.state.admission.in_use == 0
        await leave(exchange, harness)
    assert (exchange.raw, exchange.answer.status) == (b"", 0)
    assert harness.agents.turns == []
    assert harness.ends == []


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
@pytest.mark.parametrize("body", BODIES)
async def test_leaving_at_every_step_of_the_scheduler(body: Any, is_async: bool) -> None:
    """Nothing is left behind, and what the client has seen is in the transcript."""
    outcomes = set()
    for steps in range(60):
        harness = make_harness(
            ScriptedAgentFactory([Text("One "), ToolStarted("c", "t"), Text("two")], None, is_async)
        )
        async with harness.client.post(CHAT, body("Go"), SESSION) as exchange:
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            exchange.disconnect()
            await exchange.end()
            await harness.until_idle()
        kept = await harness.transcript("s")
        assert kept[:1] == ([("user", "Go")] if harness.ends else [])
        assert len(harness.ends) <= 1
        for word in ("One ", "two"):
            if word.encode() in exchange.raw:
                assert ("assistant", word) in kept
        outcomes |= set(harness.ends or [("never began", "")])
    assert {("never began", ""), GONE, ("completed", "")} >= outcomes >= {("never began", ""), GONE}


@pytest.mark.parametrize("body", BODIES)
async def test_a_detached_turn_goes_on_without_its_client(body: Any) -> None:
    first, second = Pause(), Pause()
    script: list[Step] = [Text("One "), first, Text("two."), second]
    async with idle_harness(ScriptedAgentFactory(script, is_async=True)) as harness:
        async with harness.client.post(CHAT, body("Go"), {**SESSION, POLICY: "detach"}) as exchange:
            await first.wait_reached()
            exchange.disconnect()
            await exchange.end()
        first.go()
        await second.wait_reached()  # nobody reads, and the agent still works
        assert harness.ends == []
        second.go()
        await harness.state.services.registry.wait_empty()
        assert harness.ends == [("completed", "")]
        assert await harness.transcript("s") == [("user", "Go"), ("assistant", "One two.")]


async def test_a_turn_outlives_its_client_by_the_grace_period_only(mock_clock: MockClock) -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([Text("One "), pause], is_async=True)) as harness:
        async with harness.client.post(
            CHAT, ask_stream("Go"), {**SESSION, POLICY: "grace:5"}
        ) as exchange:
            await pause.wait_reached()
            exchange.disconnect()
            await exchange.end()
        await wait_all_tasks_blocked()
        mock_clock.jump(4.75)
        await wait_all_tasks_blocked()
        assert harness.ends == []
        mock_clock.jump(0.25)
        await harness.state.services.registry.wait_empty()
        assert harness.ends == [GONE]
        assert await harness.transcript("s") == [("user", "Go"), ("assistant", "One ")]


@pytest.mark.parametrize("body", BODIES)
async def test_an_unknown_policy_is_refused(body: Any) -> None:
    harness = make_harness()
    answer = await harness.client.send(CHAT, body("Go"), {POLICY: "maybe"})
    assert answer.status == 400
    assert (answer.error["code"], answer.error["param"]) == ("invalid_on_disconnect", POLICY)
    assert harness.agents.turns == []
    assert harness.is_idle
