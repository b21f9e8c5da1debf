"""A client that leaves: at every point of a turn the agent is called off, and what was said is kept."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.events import Text, ToolCompleted, ToolOutput, ToolStarted
from tests.support.asgi import Exchange, patience
from tests.support.chat_api import checked
from tests.support.fakes import CHAT, Pause, Rig, Stage, Step, ask, ask_stream, make_rig

SESSION = {"X-Hermes-Session-Id": "s"}
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


async def leave(exchange: Exchange, rig: Rig) -> None:
    """Disconnect, and see that nothing is left."""
    exchange.disconnect()
    await exchange.end()
    assert rig.is_idle


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("steps", range(1, len(TURN) + 1))
async def test_leaving_after_every_step(steps: int, body: Any, is_async: bool) -> None:
    pause = Pause()
    script = [step for step, _ in TURN]
    rig = make_rig(Stage([*script[:steps], pause, *script[steps:]], "Done.", is_async))
    async with rig.client.post(CHAT, body("Go"), SESSION) as exchange:
        await pause.wait_reached()
        await leave(exchange, rig)
    assert rig.ends == [GONE]
    assert await rig.transcript("s") == [("user", "Go"), *TURN[steps - 1][1]]
    assert rig.stage.interrupts == ([] if is_async else ["client_disconnected"])
    assert rig.stage.left == (["Cancelled"] if is_async else [""])


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
@pytest.mark.parametrize("body", BODIES)
async def test_leaving_when_the_answer_waits_to_be_sent(body: Any, is_async: bool) -> None:
    """A run that ended is complete, whatever the socket does next."""
    pause = Pause()
    rig = make_rig(Stage([Text("All"), pause], None, is_async))
    async with rig.client.post(CHAT, body("Go"), SESSION) as exchange:
        await pause.wait_reached()
        await wait_all_tasks_blocked()  # what was said is on its way; the rest will not be read
        exchange.stall()
        pause.go()
        with patience():
            while not rig.ends:
                await trio.lowlevel.checkpoint()
        await leave(exchange, rig)
    assert rig.ends == [("completed", "")]
    assert rig.stage.interrupts == []
    assert await rig.transcript("s") == [("user", "Go"), ("assistant", "All")]


async def test_leaving_after_the_finish_frame() -> None:
    rig = make_rig([Text("All")])
    async with rig.client.post(CHAT, ask_stream("Go"), SESSION) as exchange:
        while not checked(await exchange.frame())["choices"][0]["finish_reason"]:
            pass
        await leave(exchange, rig)
    assert rig.ends == [("completed", "")]


@pytest.mark.parametrize("body", BODIES)
async def test_leaving_while_the_agent_is_made(body: Any) -> None:
    door = Pause()
    rig = make_rig(Stage([Text("never")], door=door))
    async with rig.client.post(CHAT, body("Go"), SESSION) as exchange:
        await door.wait_reached()
        exchange.disconnect()
        await wait_all_tasks_blocked()
        assert not exchange.over.is_set()  # the factory has its grace period
        door.go()
        await exchange.end()
        assert rig.is_idle
    assert rig.stage.left == []  # the agent was made, and never ran
    assert rig.ends == [GONE]
    assert await rig.transcript("s") == [("user", "Go")]


@pytest.mark.parametrize("body", BODIES)
async def test_a_thread_that_does_not_end_keeps_its_slot(body: Any, mock_clock: MockClock) -> None:
    door = Pause()
    rig = make_rig(Stage([Text("never")], door=door))
    async with rig.client.post(CHAT, body("Go"), SESSION) as exchange:
        await door.wait_reached()
        exchange.disconnect()
        await wait_all_tasks_blocked()
        mock_clock.jump(5)  # the grace period
        await exchange.end()
        assert len(rig.site.services.registry) == 0
        assert rig.site.admission.in_use == 1
        door.go()
        await rig.until_idle()
    assert rig.ends == [GONE]


async def test_leaving_before_the_body_is_complete() -> None:
    rig = make_rig()
    async with rig.client.open("POST", CHAT, [b'{"messages": '], SESSION, is_whole=False) as exchange:
        await wait_all_tasks_blocked()
        assert rig.site.admission.in_use == 1
        await leave(exchange, rig)
    assert (exchange.raw, exchange.answer.status) == (b"", 0)
    assert rig.stage.turns == []
    assert rig.ends == []


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
@pytest.mark.parametrize("body", BODIES)
async def test_leaving_at_every_step_of_the_scheduler(body: Any, is_async: bool) -> None:
    """Nothing is left behind, and what the client has seen is in the transcript."""
    outcomes = set()
    for steps in range(60):
        rig = make_rig(Stage([Text("One "), ToolStarted("c", "t"), Text("two")], None, is_async))
        async with rig.client.post(CHAT, body("Go"), SESSION) as exchange:
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            exchange.disconnect()
            await exchange.end()
            await rig.until_idle()
        kept = await rig.transcript("s")
        assert kept[:1] == ([("user", "Go")] if rig.ends else [])
        assert len(rig.ends) <= 1
        for word in ("One ", "two"):
            if word.encode() in exchange.raw:
                assert ("assistant", word) in kept
        outcomes |= set(rig.ends or [("never began", "")])
    assert {("never began", ""), GONE, ("completed", "")} >= outcomes >= {("never began", ""), GONE}
