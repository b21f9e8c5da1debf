"""``POST /v1/runs/{run_id}/stop``: at any moment, with one end that everybody hears of."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.agent.emitter import Emitter
from hermes_trio.agent.interface import AgentContext, TurnRequest
from hermes_trio.core.events import Text, ToolOutput, ToolStarted
from hermes_trio.core.records import EndedRun, LogBatch, Ownership
from hermes_trio.stores.sqlite import MemoryStore
from tests.support.asgi import TIMEOUT
from tests.support.fakes import Pause, ScriptedAgentFactory, Step
from tests.support.responses_api import idle_harness
from tests.support.runs_api import followed, kinds, shown, started, stopped

CANCELLED = {"event": "run.cancelled", "reason": "stop_requested"}


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
@pytest.mark.parametrize(
    "before",
    [
        [],
        [Text("Half ")],
        [
            Text("Let me see."),
            ToolStarted("c", "terminal", {"command": "make"}),
            ToolOutput("c", "building"),
        ],
    ],
    ids=["nothing", "text", "tool"],
)
async def test_stop_in_the_middle(before: list[Step], is_async: bool) -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([*before, pause, Text("never")], None, is_async)
    ) as harness:
        run_id = await started(harness)
        await pause.wait_reached()
        await wait_all_tasks_blocked()
        assert await stopped(harness, run_id) == "stopping"
        events = await followed(harness, run_id)
        assert events[-1].items() >= CANCELLED.items()
        told = await shown(harness, run_id)
        assert (told["status"], told["reason"]) == ("cancelled", "stop_requested")
        said = "".join(event["delta"] for event in events if event["event"] == "message.delta")
        assert (
            told["output"]
            == said
            == "".join(step.text for step in before if isinstance(step, Text))
        )
        over = [event for event in events if event["event"] == "tool.completed"]
        assert [(event["status"], event["result"]) for event in over] in (
            [],
            [("cancelled", "building")],
        )
        assert await stopped(harness, run_id) == "cancelled"
        await (
            harness.until_idle()
        )  # a thread of the agent may end after the run is announced as ended
        assert harness.ends == [("cancelled", "stop_requested")]


async def test_stop_while_the_agent_is_being_made() -> None:
    factory_pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([Text("never")], factory_pause=factory_pause)
    ) as harness:
        run_id = await started(harness)
        await factory_pause.wait_reached()
        assert await stopped(harness, run_id) == "stopping"
        assert kinds(await followed(harness, run_id)) == ["run.started", "run.cancelled"]
        factory_pause.go()
        await harness.until_idle()
        assert harness.agents.exits == []


async def test_stop_after_the_end_changes_nothing() -> None:
    async with idle_harness() as harness:
        run_id = await started(harness)
        events = await followed(harness, run_id)
        before = await shown(harness, run_id)
        for _ in range(3):
            assert await stopped(harness, run_id) == "completed"
        assert (await shown(harness, run_id), await followed(harness, run_id)) == (before, events)


class LateStore(MemoryStore):
    """Takes its time to end a run."""

    def __init__(self) -> None:
        super().__init__()
        self.pause = Pause()

    async def end_run(
        self,
        ended: EndedRun,
        tail: Sequence[LogBatch] = (),
        items: Sequence[Mapping[str, Any]] = (),
        ownership: Ownership | None = None,
    ) -> bool:
        await self.pause.stop_here_in_trio()
        return await super().end_run(ended, tail, items, ownership)


class DeafStage(ScriptedAgentFactory):
    """Makes an agent that no interrupt reaches."""

    def __init__(self) -> None:
        super().__init__(())
        self.works, self.release = threading.Event(), threading.Event()

    def factory(self, context: AgentContext) -> DeafStage:
        return self

    def run(self, turn: TurnRequest, emitter: Emitter) -> None:
        emitter.text("Half")
        self.works.set()
        assert self.release.wait(TIMEOUT)


async def test_stop_of_a_thread_that_does_not_return(mock_clock: MockClock) -> None:
    """The end is told at once.

    The run is gone after the grace period; the slot is free when the thread is.
    """
    agents = DeafStage()
    async with idle_harness(agents) as harness:
        run_id = await started(harness)
        await trio.to_thread.run_sync(agents.works.wait)
        await wait_all_tasks_blocked()
        assert await stopped(harness, run_id) == "stopping"
        assert kinds(await followed(harness, run_id))[-1] == "run.cancelled"
        assert (await shown(harness, run_id))["status"] == "cancelled"
        assert await stopped(harness, run_id) == "cancelled"
        assert len(harness.state.services.registry) == 1
        await wait_all_tasks_blocked()
        mock_clock.jump(5)
        await wait_all_tasks_blocked()
        assert (len(harness.state.services.registry), harness.state.admission.in_use) == (0, 1)
        agents.release.set()


async def test_the_status_while_it_stops() -> None:
    """Between the wish and the saved end there is a moment that a slow store makes long."""
    pause, store = Pause(), LateStore()
    async with idle_harness(
        ScriptedAgentFactory([Text("Hi"), pause], is_async=True), store=store
    ) as harness:
        run_id = await started(harness)
        await pause.wait_reached()
        await wait_all_tasks_blocked()
        assert await stopped(harness, run_id) == "stopping"
        await store.pause.wait_reached()
        told = await shown(harness, run_id)
        assert (told["status"], told["last_event"]) == ("stopping", "message.delta")
        assert await stopped(harness, run_id) == "stopping"
        store.pause.go()
        assert kinds(await followed(harness, run_id))[-1] == "run.cancelled"


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_a_stop_that_races_the_end(is_async: bool) -> None:
    """Whoever wins, there is one end, and wire, object and answer agree on it."""
    rng = random.Random(11)
    seen: dict[str, int] = {}
    for _ in range(60):
        pause = Pause()
        async with idle_harness(
            ScriptedAgentFactory([Text("Hi"), pause, Text("!")], None, is_async)
        ) as harness:
            run_id = await started(harness)
            await pause.wait_reached()
            told = await _race(harness, run_id, pause, rng)
            events = await followed(harness, run_id)
            status = (await shown(harness, run_id))["status"]
            assert events[-1]["event"] == f"run.{status}"
            assert told in {"stopping", status}
            await harness.until_idle()
            assert [end[0] for end in harness.ends] == [status]
            assert await followed(harness, run_id) == events
            assert await stopped(harness, run_id) == status
            seen[status] = seen.get(status, 0) + 1
    assert set(seen) == {"completed", "cancelled"}, seen


async def _race(harness: Any, run_id: str, pause: Pause, rng: random.Random) -> str:
    """Let the agent finish so many steps before or after the stop is asked for."""
    answers: list[str] = []

    async def stop(after: int) -> None:
        for _ in range(after):
            await trio.lowlevel.checkpoint()
        answers.append(await stopped(harness, run_id))

    async def finish(after: int) -> None:
        for _ in range(after):
            await trio.lowlevel.checkpoint()
        pause.go()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop, rng.randrange(40))
        nursery.start_soon(finish, rng.randrange(20))
    return answers[0]
