"""Agents written for asyncio emit, wait, ask and are cancelled as agents in threads are."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import frozen

from hermes_trio.agent.approvals import PendingApprovals
from hermes_trio.agent.asyncio_agent import AsyncioAgent, AsyncioEmitter
from hermes_trio.agent.emitter import Emitter, EventFactory
from hermes_trio.agent.event_queue import EventQueue
from hermes_trio.agent.interface import Agent, AgentContext, TurnRequest
from hermes_trio.agent.runner import AgentRunner, AgentRuntime
from hermes_trio.core.approvals import Decision
from hermes_trio.core.events import (
    AgentFailed,
    AnsweredBy,
    ApprovalRequest,
    Choice,
    ClientCall,
    Event,
    Finished,
    Reasoning,
    Result,
    Text,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
    coalesce,
)
from tests.support.asgi import real_timeout

YES = Decision(Choice.ONCE, AnsweredBy.CLIENT)
CONTEXT = AgentContext(TurnRequest("run-1", "session", "hello"), Path())
Work = Callable[[AsyncioEmitter], Awaitable[Any]]


@frozen
class Doing(AsyncioAgent):
    """Runs a function of the test."""

    does: Work

    async def work(self, turn: TurnRequest, emitter: AsyncioEmitter) -> Any:
        return await self.does(emitter)


class Setting:
    """An asyncio agent with its runner."""

    def __init__(self, does: Work, grace: float = 5.0, places: int = 256) -> None:
        self.agent = Doing(does)
        self.queue, self.approvals = EventQueue(places), PendingApprovals()
        host = AgentRuntime(
            lambda _: self.agent, trio.CapacityLimiter(1), trio.CapacityLimiter(1), grace
        )
        self.runner = AgentRunner(
            host, CONTEXT, self.queue, EventFactory("run-1", lambda: 0.0), self.approvals
        )
        self.gone, self.began = trio.Event(), threading.Event()

    async def run(self) -> None:
        await self.runner.run(lambda: "because", self.gone.set)

    async def to_the_end(self) -> list[Event]:
        with real_timeout():
            await self.run()
            await self.gone.wait()
        return self.queue.drain()

    async def called_off_once_begun(self) -> list[Event]:
        """Cancel it as soon as it has set ``began``."""
        with real_timeout():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.run)
                await trio.to_thread.run_sync(self.began.wait)
                nursery.cancel_scope.cancel()
        return self.queue.drain()


async def say_everything(emitter: AsyncioEmitter) -> Result:
    await asyncio.sleep(0)  # needs the loop
    await emitter.text("a")
    await emitter.text(None)
    await emitter.reasoning("r")
    await emitter.tool_started("c", "t", {"x": 1})
    await emitter.tool_output("c", "half")
    await emitter.tool_completed("c", "whole")
    await emitter.client_call("d", "theirs", "{}")
    return Result("bye")


async def test_an_asyncio_agent_can_emit_every_event() -> None:
    assert await Setting(say_everything).to_the_end() == [
        Text("a"),
        Reasoning("r"),
        ToolStarted("c", "t", {"x": 1}),
        ToolOutput("c", "half"),
        ToolCompleted("c", "whole"),
        ClientCall("d", "theirs", "{}"),
        Finished(Result("bye")),
    ]


def test_it_is_an_agent_for_threads() -> None:
    agent = Doing(say_everything)
    assert isinstance(agent, Agent)
    assert not asyncio.iscoroutinefunction(agent.run)


async def use_two_tools(emitter: AsyncioEmitter) -> str:
    async with emitter.tool("good", {"x": 1}) as call:
        call.result = "fine"
    try:
        async with emitter.tool("bad"):
            raise ValueError("no")
    except ValueError:
        return "done"


async def test_tool_blocks_show_their_calls() -> None:
    assert await Setting(use_two_tools).to_the_end() == [
        ToolStarted("call_run-1_1", "good", {"x": 1}),
        ToolCompleted("call_run-1_1", "fine"),
        ToolStarted("call_run-1_2", "bad", {}),
        ToolCompleted("call_run-1_2", "ValueError: no", True),
        Finished(Result("done")),
    ]


async def crash(emitter: AsyncioEmitter) -> None:
    raise ValueError("boom")


async def cancel_oneself(emitter: AsyncioEmitter) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("does", "last"),
    [
        (crash, AgentFailed("boom", "ValueError")),
        (cancel_oneself, AgentFailed("CancelledError", "CancelledError")),
    ],
)
async def test_an_error_ends_its_own_run_only(does: Work, last: Event) -> None:
    assert await Setting(does).to_the_end() == [last]


async def test_back_pressure_blocks_only_the_agent_itself() -> None:
    turned = threading.Event()

    async def work(emitter: AsyncioEmitter) -> None:
        speaking = asyncio.create_task(speak(emitter))
        for _ in range(100):
            await asyncio.sleep(0)
        turned.set()
        await speaking

    async def speak(emitter: AsyncioEmitter) -> None:
        for number in range(4):
            await emitter.text(str(number))

    setting = Setting(work, places=2)
    heard: list[Event] = []
    with real_timeout():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(setting.run)
            await trio.to_thread.run_sync(turned.wait)
            assert (
                setting.queue._unread_events == 2
            )  # the third waits, and the loop went on turning
            await for_batches(setting, heard)
    assert coalesce(heard) == [Text("0123"), Finished(Result())]


async def for_batches(setting: Setting, heard: list[Event]) -> None:
    """Read everything."""
    while True:
        try:
            heard += await setting.queue.receive()
        except trio.EndOfChannel:
            return


async def test_a_cancelled_emit_adds_no_event_later() -> None:
    """The agent has a time limit of its own; the text must not be emitted after it."""

    async def work(emitter: AsyncioEmitter) -> str:
        await emitter.text("one")
        try:
            async with asyncio.timeout(0.01):
                await emitter.text("two")
        except TimeoutError:
            return "gave up"
        raise AssertionError

    assert await Setting(work, places=1).to_the_end() == [Text("one"), Finished(Result("gave up"))]


async def test_a_cancelled_agent_cleans_up_and_leaves_nothing() -> None:
    notes: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            notes.append("generator closed")

    async def background() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            notes.append("task cancelled")

    async def work(emitter: AsyncioEmitter) -> None:
        left = asyncio.create_task(background())
        kept = numbers()
        await anext(kept)
        try:
            async with emitter.tool("long"):
                setting.began.set()
                await asyncio.sleep(3600)
        finally:
            notes.append("work cancelled")
            del left

    setting = Setting(work)
    assert await setting.called_off_once_begun() == [ToolStarted("call_run-1_1", "long", {})]
    assert setting.gone.is_set()
    assert notes == ["work cancelled", "task cancelled", "generator closed"]


async def test_an_agent_blocked_by_a_full_queue_is_cancelled() -> None:
    ended: list[type[BaseException]] = []

    async def work(emitter: AsyncioEmitter) -> None:
        try:
            await emitter.text("one")
            asyncio.get_running_loop().call_soon(setting.began.set)
            await emitter.text("two")
        except BaseException as error:
            ended.append(type(error))
            raise

    setting = Setting(work, places=1)
    assert await setting.called_off_once_begun() == [Text("one")]
    assert setting.gone.is_set()
    assert ended == [asyncio.CancelledError]


async def test_a_framework_that_catches_every_error_cannot_go_on() -> None:
    """The end of a run must not be handled as an error of a tool."""
    caught: list[Exception] = []

    async def work(emitter: AsyncioEmitter) -> None:
        setting.began.set()
        while True:
            try:
                await emitter.text("again")
            except Exception as error:  # noqa: BLE001 - what frameworks do with their tools
                caught.append(error)

    setting = Setting(work, places=4)
    await setting.called_off_once_begun()
    assert setting.gone.is_set()
    assert caught == []


async def test_events_after_the_cancellation_are_dropped() -> None:
    async def work(emitter: AsyncioEmitter) -> str:
        try:
            setting.began.set()
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            with pytest.raises(asyncio.CancelledError):
                await emitter.text("too late")
            with pytest.raises(asyncio.CancelledError):
                await emitter.ask("rm")
            return "swallowed"
        raise AssertionError

    setting = Setting(work)
    assert await setting.called_off_once_begun() == []
    assert setting.gone.is_set()


async def test_a_task_that_swallows_its_cancellation_is_abandoned_after_the_grace_period() -> None:
    released = threading.Event()

    async def work(emitter: AsyncioEmitter) -> None:
        setting.began.set()
        while not released.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    setting = Setting(work, grace=0.05)
    assert await setting.called_off_once_begun() == []
    assert not setting.gone.is_set()
    released.set()
    with real_timeout():
        await setting.gone.wait()


async def test_an_interrupt_before_the_loop_exists_prevents_the_run() -> None:
    began: list[AsyncioEmitter] = []

    async def work(emitter: AsyncioEmitter) -> None:
        began.append(emitter)

    agent = Doing(work)
    agent.interrupt("early")
    emitter = Emitter(EventQueue(), EventFactory("run-1"), PendingApprovals())
    with pytest.raises(asyncio.CancelledError):
        await trio.to_thread.run_sync(agent.run, CONTEXT.turn, emitter)
    assert began == []


async def test_an_interrupt_after_the_end_does_nothing() -> None:
    setting = Setting(say_everything)
    await setting.to_the_end()
    setting.agent.interrupt("late")
    assert setting.gone.is_set()


async def ask(emitter: AsyncioEmitter) -> str:
    decision = await emitter.ask("rm -r x", "deletes x", call_id="c")
    return decision.choice


async def test_an_agent_receives_the_answer_to_its_approval_request() -> None:
    setting = Setting(ask)
    heard: list[Event] = []
    with real_timeout():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(setting.run)
            [wish] = await setting.queue.receive()
            assert isinstance(wish, ApprovalRequest)
            setting.approvals.resolve(wish.approval_id, YES)
            await for_batches(setting, heard)
    assert heard == [Finished(Result("once"))]


async def test_an_answer_to_an_abandoned_request_is_ignored() -> None:
    async def work(emitter: AsyncioEmitter) -> str:
        try:
            async with asyncio.timeout(0.01):
                await emitter.ask("rm")
        except TimeoutError:
            return "nobody answered"
        raise AssertionError

    setting = Setting(work)
    wish, last = await setting.to_the_end()
    assert isinstance(wish, ApprovalRequest)
    setting.approvals.resolve(wish.approval_id, YES)
    assert last == Finished(Result("nobody answered"))


async def test_an_agent_is_cancelled_while_its_request_is_pending() -> None:
    async def work(emitter: AsyncioEmitter) -> None:
        asyncio.get_running_loop().call_later(0.01, setting.began.set)
        await emitter.ask("rm")

    setting = Setting(work)
    [wish] = await setting.called_off_once_begun()
    assert isinstance(wish, ApprovalRequest)
    assert setting.gone.is_set()


def test_the_module_is_imported_on_use_only() -> None:
    code = "import sys, hermes_trio.agent.runner; sys.exit('hermes_trio.agent.asyncio_agent' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
