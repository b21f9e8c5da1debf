"""A stop and the end at the same moment, through the routes.

One end, and everybody tells the same one.

``tests/runs/test_stop_races.py`` does it a thousand times, without the routes.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
import trio
from attrs import frozen

from hermes_trio.core.dialects.runs import final_state
from hermes_trio.core.events import Text
from hermes_trio.core.records import EndedRun
from tests.support.fakes import AppHarness, Pause, ScriptedAgentFactory
from tests.support.responses_api import idle_harness
from tests.support.runs_api import followed, kinds, shown, started, stopped

ROUNDS = 120
TERMINAL = {"run.completed", "run.failed", "run.cancelled"}


@frozen
class Start:
    """How many steps of the scheduler each of the two waits before it moves."""

    stop: int
    finish: int


async def steps(count: int) -> None:
    for _ in range(count):
        await trio.lowlevel.checkpoint()


async def race(harness: AppHarness, start: Start) -> tuple[str, str]:
    """Stop a run that is about to finish; returns its id and what the stop was answered."""
    pause = Pause()
    harness.agents.script = [Text("Hi"), pause, Text("!")]
    run_id = await started(harness)
    await pause.wait_reached()
    answers: list[str] = []

    async def stop() -> None:
        await steps(start.stop)
        answers.append(await stopped(harness, run_id))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop)
        await steps(start.finish)
        pause.go()
    return run_id, answers[0]


async def ended_as(harness: AppHarness, run_id: str) -> str:
    """How a run ended: as its events, its object and its record all say."""
    events = await followed(harness, run_id)
    assert [kind for kind in kinds(events) if kind in TERMINAL] == [events[-1]["event"]]
    told = await shown(harness, run_id)
    record = await harness.store.find_run("ann", run_id)
    assert isinstance(record, EndedRun)
    assert events[-1]["event"] == f"run.{told['status']}"
    assert told["status"] == final_state(record.outcome)
    said = "".join(event.get("delta", "") for event in events)
    assert told["output"] == said
    return str(told["status"])


@pytest.mark.slow
async def test_many_races() -> None:
    chance = random.Random(5)
    seen: Counter[tuple[str, str]] = Counter()
    async with idle_harness(ScriptedAgentFactory([], is_async=True)) as harness:
        for n in range(ROUNDS):
            run_id, answer = await race(harness, Start(n % 40, chance.randrange(20)))
            status = await ended_as(harness, run_id)
            assert answer in {"stopping", status}
            seen[answer, status] += 1
            await harness.until_idle()
            assert len(harness.ends) == n + 1
            assert harness.ends[-1][0] == status
            # Whoever is too late changes nothing.
            assert await stopped(harness, run_id) == status
    # Neither always wins, and a stop may be heard and still be too late.
    assert {("stopping", "cancelled"), ("completed", "completed")} <= set(seen), seen
