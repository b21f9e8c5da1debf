"""A stop and the end at the same moment, a thousand times.

One end, and everybody tells the same one.

``tests/web/test_stop_races.py`` does the same through the routes.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
import trio
from attrs import define, field, frozen

from hermes_trio.agent.emitter import AsyncEmitter
from hermes_trio.agent.interface import TurnRequest
from hermes_trio.core.changes import Change
from hermes_trio.core.dialects.runs import frames_after, run_object
from hermes_trio.core.outcome import Reason
from hermes_trio.runs.disconnects import DETACH
from hermes_trio.runs.supervisor import attach
from tests.runs.supervisor_harness import SupervisorHarness, open_supervisor_harness
from tests.support.run_stream_rules import check_whole

ROUNDS = 1_000
TERMINAL = {"run.completed", "run.failed", "run.cancelled"}


async def steps(count: int) -> None:
    """Let the others run so often."""
    for _ in range(count):
        await trio.lowlevel.checkpoint()


@frozen
class Start:
    """How many steps of the scheduler each of the two waits before it moves."""

    stop: int
    finish: int


@define(eq=False)
class Racer:
    """An agent that is about to finish."""

    delays: dict[str, int] = field(factory=dict)
    about_to: trio.Event = field(factory=trio.Event)

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> None:
        """Say two things, with so many steps in between."""
        await emitter.text("Hi")
        self.about_to.set()
        await steps(self.delays[turn.run_id])
        await emitter.text("!")


async def race(harness: SupervisorHarness, racer: Racer, run_id: str, start: Start) -> str:
    """Stop a run that is about to finish; returns how it ended, as all who tell of it say."""
    racer.delays[run_id], racer.about_to = start.finish, trio.Event()
    run, ticket = await harness.supervisor.start(harness.make_spec(run_id, DETACH))
    heard: list[Change] = []

    async def listen() -> None:
        async with attach(run, ticket) as reader:
            async for batch in reader:
                heard.extend(batch)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await racer.about_to.wait()
        await steps(start.stop)
        run.stop(Reason.STOP_REQUESTED)
    await run.ended.wait()
    return await told(harness, run_id, heard)


async def told(harness: SupervisorHarness, run_id: str, heard: list[Change]) -> str:
    """What the live stream, the stored one, the object and the record say of the end, which is one."""
    record = await harness.ended(run_id)
    live = frames_after(record.header, heard)
    assert live == frames_after(record.header, await harness.logged(run_id))
    events = check_whole(live)
    assert [event["event"] for event in events if event["event"] in TERMINAL] == [
        events[-1]["event"]
    ]
    shown = run_object(record)
    assert events[-1]["event"] == shown["last_event"] == f"run.{shown['status']}"
    assert shown["output"] == "".join(event.get("delta", "") for event in events)
    return f"{record.outcome.status} {shown['output']}"


@pytest.mark.slow
async def test_a_thousand_races() -> None:
    chance, racer = random.Random(5), Racer()
    seen: Counter[str] = Counter()
    async with open_supervisor_harness(racer, interval=0.0) as harness:
        for n in range(ROUNDS):
            seen[await race(harness, racer, f"run-{n}", Start(n % 16, chance.randrange(16)))] += 1
    harness.check_nothing_left()
    # Each of the two wins, and a stop may come between two words.
    assert {"completed Hi!", "cancelled Hi"} <= set(seen), seen
    assert set(seen) <= {"completed Hi!", "cancelled Hi", "cancelled Hi!", "cancelled "}, seen
    assert min(seen["completed Hi!"], seen["cancelled Hi"]) > ROUNDS // 20, seen
