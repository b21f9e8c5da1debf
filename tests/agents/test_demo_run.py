"""The demo agent behind the real bridge: cancelling the run ends it at once, whatever it does."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from hermes_trio.agent.interface import AgentContext
from hermes_trio.agents.demo import DemoAgent, factory
from hermes_trio.core.events import (
    AgentFailed,
    Event,
    Finished,
    Text,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
    Verdict,
)
from tests.support.agent_harness import start, turn
from tests.support.processes import children, has_ended


def impatient(context: AgentContext) -> DemoAgent:
    return DemoAgent(context.workspace, word_delay=0)


async def test_a_whole_turn(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            run = await start(nursery, impatient, turn("/terminal echo hi; exit 2"), tmp_path)
            await run.to_end()
    kinds = [type(event) for event in run.events if not isinstance(event, Text)]
    assert kinds == [ToolStarted, ToolOutput, ToolCompleted, Finished]
    assert run.gone.is_set()


async def test_a_failure(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            run = await start(nursery, impatient, turn("/fail as told"), tmp_path)
            await run.to_end()
    assert isinstance(run.events[-1], AgentFailed)
    assert (run.events[-1].message, run.events[-1].kind) == ("as told", "RuntimeError")


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("/terminal sleep 61 & echo $!; sleep 62", ToolOutput),
        ("/terminal trap '' TERM; sleep 61 & echo $!; while :; do wait; done", ToolOutput),
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


async def test_the_shipped_factory_streams(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            run = await start(nursery, factory, turn("hi", options={"max_tokens": 3}), tmp_path)
            await run.to_end()
    last = run.events[-1]
    assert isinstance(last, Finished)
    assert last.result.verdict is Verdict.TRUNCATED
