"""The testing module for agent authors.

It runs any kind of agent, and cancels it at every point.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from hermes_trio import (
    AgentConfig,
    AgentContext,
    AgentFactory,
    AsyncEmitter,
    AsyncioAgent,
    AsyncioEmitter,
    Choice,
    Emitter,
    Result,
    RunEnded,
    TurnRequest,
    Usage,
)
from hermes_trio.testing import Reason, Status, check_cancellation, run_agent
from tests.support.doc_examples import ROOT


class Threaded:
    def run(self, turn: TurnRequest, emitter: Emitter) -> Result:
        emitter.reasoning("hm")
        with emitter.tool("count", {"text": turn.text}) as call:
            emitter.tool_output(call.call_id, "counting")
            call.result = len(turn.text)
        emitter.text("You said: ")
        emitter.text(turn.text)
        return Result(usage=Usage(1, 2))


class Task:
    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> Result:
        await emitter.reasoning("hm")
        async with emitter.tool("count", {"text": turn.text}) as call:
            await emitter.tool_output(call.call_id, "counting")
            call.result = len(turn.text)
        await emitter.text("You said: ")
        await emitter.text(turn.text)
        return Result(usage=Usage(1, 2))


class Asyncio(AsyncioAgent):
    async def work(self, turn: TurnRequest, emitter: AsyncioEmitter) -> Result:
        return await Task().run(turn, emitter)


KINDS = [Threaded, Task, Asyncio]


def factory_of(kind: Any) -> AgentFactory:
    return lambda _context: kind()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_whole_turn(kind: Any) -> None:
    for agent in (factory_of(kind), kind()):
        run = await run_agent(agent, "hello")
        assert (run.status, run.text, run.answer) == (
            Status.COMPLETED,
            "You said: hello",
            "You said: hello",
        )
        assert run.reasoning == "hm"
        assert run.outcome.usage == Usage(1, 2)
        [call] = run.tool_calls
        assert (call.name, call.args, call.result) == ("count", {"text": "hello"}, "5")
        assert (call.output, call.is_error, call.is_complete) == ("counting", False, True)
        assert len(run.events) == 6
        assert not run.is_abandoned


@pytest.mark.parametrize("kind", KINDS)
async def test_cut_everywhere(kind: Any) -> None:
    runs = await check_cancellation(factory_of(kind), "hello", reason=Reason.STOP_REQUESTED)
    assert [len(run.events) for run in runs] == [*range(7)]
    assert {run.status for run in runs} == {Status.CANCELLED}
    assert [run.text for run in runs][-3:] == ["", "You said: ", "You said: hello"]
    assert [call.is_complete for call in runs[2].tool_calls] == [False]


def test_with_plain_trio() -> None:
    assert trio.run(partial(run_agent, Threaded(), "hello", stop_after=5)).text == "You said: "
    assert trio.run(run_agent, Task()).status is Status.COMPLETED


async def test_a_returned_text_is_the_answer() -> None:
    class Returning:
        def run(self, turn: TurnRequest, emitter: Emitter) -> str:
            return turn.text.upper()

    run = await run_agent(Returning(), TurnRequest("run_1", "session_1", "hello"))
    assert (run.text, run.answer, run.events) == ("", "HELLO", ())


async def test_an_exception_is_a_failed_run() -> None:
    class Failing:
        def run(self, turn: TurnRequest, emitter: Emitter) -> None:
            emitter.text("so far")
            raise ValueError("so good")

    with capture_logs():
        run = await run_agent(Failing())
    assert (run.status, run.text) == (Status.FAILED, "so far")
    assert (run.outcome.failure.kind, run.outcome.failure.message) == ("ValueError", "so good")


class Asking:
    def run(self, turn: TurnRequest, emitter: Emitter) -> str:
        return ", ".join(str(emitter.ask(command).choice) for command in ("ls", "rm"))


async def test_approval_requests_are_answered() -> None:
    run = await run_agent(
        Asking(), decide=lambda request: Choice.ONCE if request.command == "ls" else Choice.DENY
    )
    assert run.answer == "once, deny"
    assert [request.command for request in run.approval_requests] == ["ls", "rm"]
    assert (await run_agent(Asking())).answer == "deny, deny"
    assert len(await check_cancellation(lambda _context: Asking())) == 3


async def test_an_agent_that_does_not_stop_is_reported() -> None:
    release = threading.Event()

    class Deaf:
        def run(self, turn: TurnRequest, emitter: Emitter) -> None:
            try:
                emitter.text("a")
                emitter.text("b")
            except RunEnded:
                release.wait()

    try:
        with pytest.raises(
            AssertionError, match=r"did not stop after event 1, which was Text\(text='a'\)"
        ):
            await check_cancellation(lambda _context: Deaf(), grace_seconds=0.05)
    finally:
        release.set()


async def test_context_and_provider(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Provider:
        @asynccontextmanager
        async def open(self, config: AgentConfig, workspace: Path) -> AsyncIterator[AgentFactory]:
            def factory(context: AgentContext) -> Task:
                seen.append((context.config.model, context.workspace))
                return Task()

            yield factory

    config = AgentConfig(model="small")
    run = await run_agent(Provider(), config=config, workspace=tmp_path)
    assert run.status is Status.COMPLETED
    assert seen == [("small", tmp_path)]
    await run_agent(Provider())
    assert not seen[1][1].exists()


def test_pytest_is_not_needed() -> None:
    program = "import sys, hermes_trio.testing; sys.exit('pytest' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
