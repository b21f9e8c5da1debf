"""The demo agent behind the real agent runner: cancelling the run ends it at once, whatever it does."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from hermes_trio.agent.interface import AgentContext
from hermes_trio.agents.demo import DemoAgent, factory
from hermes_trio.core.events import Event, Text, ToolCompleted, ToolOutput, ToolStarted
from hermes_trio.testing import Reason, Status, check_cancellation, run_agent
from tests.support.agent_harness import start, turn
from tests.support.processes import children, has_ended


def impatient(context: AgentContext) -> DemoAgent:
    return DemoAgent(context.workspace, word_delay=0)


async def test_a_whole_turn(tmp_path: Path) -> None:
    with trio.fail_after(5):
        run = await run_agent(impatient, "/terminal echo hi; exit 2", workspace=tmp_path)
    kinds = [type(event) for event in run.events if not isinstance(event, Text)]
    assert kinds == [ToolStarted, ToolOutput, ToolCompleted]
    assert run.status is Status.COMPLETED


async def test_a_failure() -> None:
    with trio.fail_after(5):
        run = await run_agent(impatient, "/fail as told")
    assert run.status is Status.FAILED
    assert (run.outcome.failure.message, run.outcome.failure.kind) == ("as told", "RuntimeError")


async def test_it_stops_at_every_event() -> None:
    for run in await check_cancellation(impatient, "/think\n/terminal echo hi\n/long 3"):
        assert run.status is Status.INCOMPLETE


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("/terminal sleep 61 & echo $!; sleep 62", ToolOutput),
        ("/terminal sleep 61 & sleep 61 & echo $!; wait", ToolOutput),
        ("/terminal yes 1", ToolOutput),
        ("/sleep 60", ToolStarted),
        ("/long 1000000", Text),
    ],
)
async def test_cancelling_ends_it_at_once(tmp_path: Path, script: str, kind: type[Event]) -> None:
    before = children()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            run = await start(nursery, impatient, turn(script), tmp_path)
            reached = await run.until(kind)
            run.scope.cancel()
            with trio.fail_after(1):
                await run.gone.wait()
    assert not children() - before
    if isinstance(reached, ToolOutput) and "echo $!" in script:
        assert await trio.to_thread.run_sync(partial(has_ended, int(reached.text)))


async def test_cancelling_ends_a_long_pause(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            made = trio.Event()
            token = trio.lowlevel.current_trio_token()

            def slow(context: AgentContext) -> DemoAgent:
                token.run_sync_soon(made.set)
                return DemoAgent(context.workspace, word_delay=60)

            run = await start(nursery, slow, turn("hello"), tmp_path)
            await made.wait()
            run.scope.cancel()
            with trio.fail_after(1):
                await run.gone.wait()


async def test_the_shipped_factory_streams() -> None:
    with trio.fail_after(5):
        run = await run_agent(factory, turn("hi", options={"max_tokens": 3}))
    assert (run.status, run.outcome.reason) == (Status.INCOMPLETE, Reason.MAX_OUTPUT_TOKENS)
