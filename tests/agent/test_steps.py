"""An agent that is a task, step by step."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest
import trio
import trio.testing

from hermes_trio.agent.steps import in_steps


class Ledger:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin_step(self) -> None:
        self.lines.append("begin")

    def end_step(self) -> None:
        self.lines.append("end")


async def ledger_of(agent: Coroutine[Any, Any, Any]) -> list[str]:
    ledger = Ledger()
    await in_steps(agent, ledger)
    return ledger.lines


async def test_a_step_ends_where_the_agent_waits() -> None:
    async def agent() -> None:
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint_if_cancelled()  # that is no wait
        await trio.lowlevel.checkpoint()

    assert await ledger_of(agent()) == ["begin", "end", "begin", "end", "begin"]


async def test_an_agent_that_never_waits_takes_one_step() -> None:
    async def agent() -> None:
        """Done."""

    assert await ledger_of(agent()) == ["begin"]


async def test_what_is_sent_and_returned_is_passed_on() -> None:
    send, receive = trio.open_memory_channel[int](0)

    async def agent() -> int:
        return await receive.receive() + 1

    async def give() -> None:
        await send.send(41)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(give)
        assert await in_steps(agent(), Ledger()) == 42


async def test_what_an_agent_raises_is_passed_on() -> None:
    async def agent() -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("a")

    with pytest.raises(KeyError, match="a"):
        await in_steps(agent(), Ledger())


async def test_a_cancellation_is_the_agents_to_handle(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[str] = []

    async def agent() -> None:
        try:
            await trio.sleep_forever()
        finally:
            seen.append("told")
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            seen.append("cleaned up")

    ledger = Ledger()
    with trio.move_on_after(5) as scope:
        await in_steps(agent(), ledger)
    assert scope.cancelled_caught
    assert seen == ["told", "cleaned up"]
    assert ledger.lines == ["begin", "end"] * 2 + ["begin"]


async def test_an_agent_may_wait_for_its_own_timeouts(autojump_clock: trio.testing.MockClock) -> None:
    async def agent() -> bool:
        with trio.move_on_after(1) as scope:
            await trio.sleep_forever()
        return scope.cancelled_caught

    assert await in_steps(agent(), Ledger())


class Luggage:
    """Something that a frame holds."""


async def test_what_was_thrown_is_not_kept_while_the_agent_waits() -> None:
    held: list[weakref.ref[Luggage]] = []

    async def short() -> None:
        luggage = Luggage()
        held.append(weakref.ref(luggage))
        with trio.CancelScope() as scope:
            scope.cancel()
            await trio.sleep_forever()

    async def agent() -> None:
        await short()
        await trio.sleep_forever()

    async def run() -> None:
        await in_steps(agent(), Ledger())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        assert held[0]() is None
        nursery.cancel_scope.cancel()


def test_one_that_is_thrown_away_closes_the_agent() -> None:
    seen: list[str] = []

    async def agent() -> None:
        try:
            await trio.sleep_forever()
        finally:
            seen.append("closed")

    async def main() -> None:
        waiting = in_steps(agent(), Ledger())
        waiting.send(None)
        waiting.close()

    coroutine = main()
    with pytest.raises(StopIteration):
        coroutine.send(None)
    gc.collect()
    assert seen == ["closed"]
