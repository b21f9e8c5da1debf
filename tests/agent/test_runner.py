"""The agent runner: agents in threads and tasks, their results, and how they are cancelled."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.agent.approvals import PendingApprovals
from hermes_trio.agent.emitter import AsyncEmitter, Emitter, EventFactory
from hermes_trio.agent.event_queue import EventQueue, RunEnded
from hermes_trio.agent.interface import Agent, AgentContext, AsyncAgent, TurnRequest, nonblocking
from hermes_trio.agent.runner import AgentRunner, AgentRuntime, _ThreadState
from hermes_trio.core.events import AgentFailed, Event, Finished, Result, Text

CONTEXT = AgentContext(TurnRequest("run-1", "session", "hello"), Path())


class Setting:
    """A runner with everything it needs."""

    def __init__(
        self, make: Callable[[], Any], grace: float = 5.0, is_nonblocking: bool = False
    ) -> None:
        self.threads = trio.CapacityLimiter(1)

        def factory(_: AgentContext) -> Any:
            return make()

        host = AgentRuntime(
            nonblocking(factory) if is_nonblocking else factory,
            self.threads,
            trio.CapacityLimiter(2),
            grace,
        )
        self.queue = EventQueue()
        self.runner = AgentRunner(
            host, CONTEXT, self.queue, EventFactory("run-1", lambda: 0.0), PendingApprovals()
        )
        self.gone = trio.Event()
        self.exits = 0

    def on_exit(self) -> None:
        self.exits += 1
        self.gone.set()

    async def thread_is_free(self) -> None:
        """Trio takes the token back a moment after the thread's last line."""
        with trio.fail_after(5):
            async with self.threads:
                pass

    async def run(self) -> None:
        await self.runner.run(lambda: "because", self.on_exit)


class Talker:
    def run(self, turn: TurnRequest, emitter: Emitter) -> str:
        emitter.text(turn.text)
        return "bye"


class AsyncTalker:
    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> Result:
        await emitter.text(turn.text)
        return Result("bye")


@pytest.mark.parametrize("is_nonblocking", [False, True])
@pytest.mark.parametrize("make", [Talker, AsyncTalker])
async def test_events_and_result_of_an_agent_are_received(
    make: Callable[[], Agent | AsyncAgent], is_nonblocking: bool
) -> None:
    setting = Setting(make, is_nonblocking=is_nonblocking)
    await setting.run()
    await setting.gone.wait()
    assert setting.queue.drain() == [Text("hello"), Finished(Result("bye"))]
    assert setting.exits == 1
    await setting.thread_is_free()


def raising(error: BaseException) -> Callable[[], Any]:
    def make() -> Any:
        raise error

    return make


class Raiser:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def run(self, turn: TurnRequest, emitter: Emitter) -> str:
        raise self.error


class AsyncRaiser:
    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> str:
        raise ValueError("async boom")


class Odd:
    def run(self, turn: TurnRequest, emitter: Emitter) -> Any:
        return 42


class Silent:
    def run(self, turn: TurnRequest, emitter: Emitter) -> None:
        return None


@pytest.mark.parametrize(
    ("make", "last"),
    [
        (raising(ValueError("cannot be made")), AgentFailed("cannot be made", "ValueError")),
        (lambda: Raiser(RuntimeError("boom")), AgentFailed("boom", "RuntimeError")),
        (lambda: Raiser(RuntimeError()), AgentFailed("RuntimeError", "RuntimeError")),
        (lambda: Raiser(SystemExit(3)), AgentFailed("3", "SystemExit")),
        (AsyncRaiser, AgentFailed("async boom", "ValueError")),
        (Odd, AgentFailed("run() returned int, not a Result or a text", "TypeError")),
        (Silent, Finished()),
    ],
)
@pytest.mark.parametrize("is_nonblocking", [False, True])
async def test_whatever_an_agent_does_ends_its_own_run_only(
    make: Callable[[], Any], last: Event, is_nonblocking: bool
) -> None:
    setting = Setting(make, is_nonblocking=is_nonblocking)
    await setting.run()
    await setting.gone.wait()
    assert setting.queue.drain() == [last]


@pytest.mark.parametrize(("is_nonblocking", "is_here"), [(True, True), (False, False)])
async def test_only_nonblocking_factories_run_in_the_trio_thread(
    is_nonblocking: bool, is_here: bool
) -> None:
    threads: list[threading.Thread] = []

    def make() -> AsyncTalker:
        threads.append(threading.current_thread())
        return AsyncTalker()

    setting = Setting(make, is_nonblocking=is_nonblocking)
    await setting.run()
    assert (threads == [threading.current_thread()]) is is_here


class Patient:
    """Waits for its interrupt."""

    obeys = False

    def __init__(self) -> None:
        self.began, self.interrupted = threading.Event(), threading.Event()
        self.reason = ""
        self.after: list[str] = []

    def interrupt(self, reason: str) -> None:
        self.reason = reason
        self.interrupted.set()

    def run(self, turn: TurnRequest, emitter: Emitter) -> str:
        emitter.text("waiting")
        self.began.set()
        self.interrupted.wait()
        try:
            emitter.text("too late")
        except RunEnded:
            self.after.append("heard that the run ended")
            if self.obeys:
                raise
        return "done"


async def begun(nursery: trio.Nursery, setting: Setting, began: threading.Event) -> None:
    nursery.start_soon(setting.run)
    await trio.to_thread.run_sync(began.wait)


async def test_a_cancelled_agent_is_interrupted_and_waited_for() -> None:
    agent = Patient()
    setting = Setting(lambda: agent)
    async with trio.open_nursery() as nursery:
        await begun(nursery, setting, agent.began)
        nursery.cancel_scope.cancel()
    assert agent.reason == "because"
    assert agent.after == ["heard that the run ended"]
    await setting.gone.wait()
    assert setting.queue.drain() == [Text("waiting")]
    await setting.thread_is_free()


class Deaf:
    """Ignores its interrupt until the test lets it go."""

    def __init__(self) -> None:
        self.began, self.released = threading.Event(), threading.Event()

    def interrupt(self, reason: str) -> None:
        raise RuntimeError("and its interrupt fails")

    def run(self, turn: TurnRequest, emitter: Emitter) -> str:
        self.began.set()
        self.released.wait()
        return "at last"


async def test_an_agent_that_ignores_its_interrupt_is_abandoned_but_keeps_its_slot() -> None:
    agent = Deaf()
    setting = Setting(lambda: agent, grace=0.05)
    async with trio.open_nursery() as nursery:
        await begun(nursery, setting, agent.began)
        nursery.cancel_scope.cancel()
    assert setting.exits == 0
    assert setting.threads.borrowed_tokens == 1
    agent.released.set()
    await setting.gone.wait()
    assert setting.exits == 1


async def test_an_agent_cancelled_in_its_factory_never_runs() -> None:
    making, made = threading.Event(), threading.Event()
    agent = Patient()

    def make() -> Patient:
        making.set()
        made.wait()
        return agent

    setting = Setting(make)
    async with trio.open_nursery() as nursery:
        await begun(nursery, setting, making)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()  # the runner has called it off
        made.set()
    await setting.gone.wait()
    assert not agent.began.is_set()


async def test_an_agent_cancelled_before_its_thread_starts_ends_at_once() -> None:
    setting = Setting(Talker)
    with trio.CancelScope() as scope:
        scope.cancel()
        await setting.run()
    assert setting.exits == 1
    assert setting.queue.drain() == []


async def test_a_thread_that_starts_after_the_cancellation_does_nothing() -> None:
    """The thread was requested, but cancelled before its first line."""
    setting = Setting(Talker)
    with trio.CancelScope() as scope:
        scope.cancel()
        await setting.run()
    await trio.to_thread.run_sync(setting.runner._in_thread)
    assert setting.exits == 1
    assert setting.queue.drain() == []


def until_over(setting: Setting) -> None:
    """Return when the thread has nothing more to do, and before Trio is notified.

    That is why this blocks.
    """
    limit = time.monotonic() + 5
    while setting.runner._thread_state is not _ThreadState.ENDED:
        assert time.monotonic() < limit
        time.sleep(0.001)


class Prompt(Deaf):
    """Ends when the test lets it go, and remembers whether it was interrupted."""

    reason = ""

    def interrupt(self, reason: str) -> None:
        self.reason = reason


async def test_a_thread_that_ends_during_its_cancellation_frees_its_slot_once() -> None:
    agent = Prompt()
    setting = Setting(lambda: agent)
    async with trio.open_nursery() as nursery:
        await begun(nursery, setting, agent.began)
        agent.released.set()
        until_over(setting)
        nursery.cancel_scope.cancel()
    assert setting.exits == 1
    assert not setting.runner.thread_abandoned
    assert not agent.reason
    assert setting.queue.drain() == [Finished(Result("at last"))]
    await setting.thread_is_free()


class Sleeper:
    def __init__(self) -> None:
        self.began, self.cancelled = trio.Event(), False

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> str:
        self.began.set()
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            self.cancelled = True
            raise
        raise AssertionError


async def test_a_task_is_interrupted_by_cancellation() -> None:
    agent = Sleeper()
    setting = Setting(lambda: agent)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(setting.run)
        await agent.began.wait()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert agent.cancelled
    assert setting.exits == 1


async def test_an_async_agent_cancelled_in_its_factory_frees_its_slot_once() -> None:
    making, made = threading.Event(), threading.Event()

    def make() -> AsyncTalker:
        making.set()
        made.wait()
        return AsyncTalker()

    setting = Setting(make, grace=0.05)
    async with trio.open_nursery() as nursery:
        await begun(nursery, setting, making)
        nursery.cancel_scope.cancel()
    assert setting.exits == 0
    made.set()
    await setting.gone.wait()
    assert setting.exits == 1


async def test_a_task_without_a_thread_is_cancelled() -> None:
    agent = Sleeper()
    setting = Setting(lambda: agent, is_nonblocking=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(setting.run)
        await agent.began.wait()
        nursery.cancel_scope.cancel()
    assert setting.exits == 1
    assert not setting.runner.thread_abandoned


@pytest.mark.parametrize(
    ("make", "is_nonblocking"),
    [
        (lambda: Raiser(RuntimeError("boom")), False),
        (AsyncRaiser, False),
        (AsyncRaiser, True),
        (raising(ValueError("cannot be made")), False),
        (raising(ValueError("cannot be made")), True),
    ],
)
async def test_what_an_agent_raises_is_logged_once_with_its_traceback(
    make: Callable[[], Any], is_nonblocking: bool
) -> None:
    setting = Setting(make, is_nonblocking=is_nonblocking)
    with (
        structlog.testing.capture_logs() as lines,
        structlog.contextvars.bound_contextvars(run_id="run-1"),
    ):
        await setting.run()
    [line] = lines
    assert (line["event"], line["log_level"]) == ("the agent raised an exception", "error")
    assert line["exc_info"].__traceback__ is not None


class UsesAsyncio:
    """An agent whose author forgot that it runs under Trio."""

    def __init__(self, work: Callable[[], Awaitable[object]]) -> None:
        self.work = work

    async def run(self, _turn: TurnRequest, _emitter: AsyncEmitter) -> None:
        await self.work()


class AsyncioFuture:
    """Yields itself to the event loop, as futures of asyncio do."""

    def __await__(self) -> Generator[object, None, None]:
        yield self


@pytest.mark.parametrize("work", [lambda: asyncio.sleep(0.1), AsyncioFuture])
async def test_an_agent_that_needs_asyncio_is_told_so(
    work: Callable[[], Awaitable[object]],
) -> None:
    with structlog.testing.capture_logs() as lines:
        await Setting(lambda: UsesAsyncio(work)).run()
    [line] = lines
    assert line["event"] == "the agent raised an exception"
    assert "hermes_trio.AsyncioAgent" in line["hint"]


async def test_what_a_factory_makes_must_be_an_agent() -> None:
    with structlog.testing.capture_logs() as lines:
        await Setting(lambda: 3).run()
    assert (
        str(lines[0]["exc_info"])
        == "the factory made an object of type 'int', which has no method 'run'"
    )


async def test_run_ended_is_not_logged_as_an_error() -> None:
    """A ``RunEnded`` that propagates through an agent is the server's own cancellation."""
    agent = Patient()
    agent.obeys = True
    setting = Setting(lambda: agent)
    with structlog.testing.capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            await begun(nursery, setting, agent.began)
            nursery.cancel_scope.cancel()
        await setting.gone.wait()
    assert lines == []
