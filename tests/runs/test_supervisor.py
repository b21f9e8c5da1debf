"""Runs that the server owns: how they begin, who may leave, and what is never left behind."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.changes import Ended
from hermes_trio.core.events import Event, Text, ToolCompleted, ToolStarted
from hermes_trio.core.outcome import Reason, Status
from hermes_trio.core.records import EndedRun, LiveRun, NoRun, Ownership, RunHeader
from hermes_trio.runs.disconnects import DETACH, INTERRUPT, DisconnectPolicy
from hermes_trio.runs.spec import Persistence
from hermes_trio.runs.supervisor import attach
from hermes_trio.runs.tracker import RunLimits
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.sqlite import MemoryStore
from tests.runs.supervisor_harness import (
    BlockableStore,
    SupervisorHarness,
    open_supervisor_harness,
    read_all,
)
from tests.support.run_harness import EventReplayAgent

SCRIPT: list[Event] = [
    Text("one "),
    ToolStarted("a", "terminal"),
    ToolCompleted("a", "ok"),
    Text("two"),
]


async def listen(harness: SupervisorHarness, policy: DisconnectPolicy = INTERRUPT) -> None:
    """A client that starts a run and reads it to its end."""
    run, ticket = await harness.supervisor.start(harness.make_spec(policy=policy))
    async with attach(run, ticket, applies_backpressure=True) as reader:
        await read_all(reader)


async def test_start_returns_when_the_store_knows_of_the_run() -> None:
    store, agent = BlockableStore(), EventReplayAgent(SCRIPT, holds=True)
    store.blocked["begin"] = trio.Event()
    async with open_supervisor_harness(agent, store) as harness, trio.open_nursery() as nursery:
        nursery.start_soon(listen, harness)
        await wait_all_tasks_blocked()
        assert store.calls == ["begin"]
        assert await harness.record() == NoRun()
        assert not agent.said_all.is_set()
        store.blocked["begin"].set()
        await agent.said_all.wait()
        assert isinstance(await harness.record(), LiveRun)
        agent.may_end.set()
    assert (await harness.ended()).outcome.status is Status.COMPLETED


async def test_a_store_that_refuses_leaves_nothing() -> None:
    store, agent = BlockableStore(), EventReplayAgent(SCRIPT)
    store.broken.add("begin")
    async with open_supervisor_harness(agent, store) as harness:
        with pytest.raises(StoreError, match="the disk is full"):
            await harness.supervisor.start(harness.make_spec())
        harness.check_nothing_left()
        assert await harness.record() == NoRun()
        assert not agent.said_all.is_set()
        store.broken.clear()
        await listen(harness)
        await harness.services.registry.wait_empty()
        harness.check_nothing_left()


async def test_a_run_that_began_although_the_store_failed_is_ended(
    autojump_clock: MockClock,
) -> None:
    """The connection was lost after the commit, before the answer."""
    store = LosesAnswers()
    async with open_supervisor_harness(EventReplayAgent(SCRIPT), store) as harness:
        with pytest.raises(StoreError, match="lost"):
            await harness.supervisor.start(harness.make_spec())
        harness.check_nothing_left()
        assert isinstance(await harness.record(), LiveRun)
        store.fails_to_read = True
        await trio.sleep(5)
        store.fails_to_read = False
        await trio.sleep(2)
        assert (await harness.ended()).outcome.reason is Reason.SERVER_ERROR
        assert isinstance((await harness.logged())[-1], Ended)


class LosesAnswers(MemoryStore):
    """Stores that a run begins, and fails all the same."""

    fails_to_read = False

    async def begin_run(self, header: RunHeader, ownership: Ownership) -> None:
        """Begin the run."""
        await super().begin_run(header, ownership)
        raise StoreError("the connection was lost")

    async def find_run(self, principal: str, run_id: str) -> LiveRun | EndedRun | NoRun:
        """Find the run, or fail."""
        if self.fails_to_read:
            raise StoreError("the store does not work")
        return await super().find_run(principal, run_id)


async def test_a_run_that_begins_too_late_is_ended(autojump_clock: MockClock) -> None:
    store = BlockableStore()
    store.blocked["begin"] = trio.Event()
    async with open_supervisor_harness(
        EventReplayAgent(SCRIPT), store, RunLimits(save=10.0)
    ) as harness:
        order = harness.make_spec()
        with pytest.raises(StoreError, match="too long"):
            await harness.supervisor.start(order)
        harness.check_nothing_left()
        store.blocked["begin"].set()
        await store.begin_run(
            order.header, Ownership("this process")
        )  # what was left in the store's queue
        await trio.sleep(2)
        assert (await harness.ended()).outcome.status is Status.FAILED
        assert isinstance((await harness.logged())[-1], Ended)


@pytest.mark.parametrize("policy", [INTERRUPT, DisconnectPolicy(0.0), DETACH])
@pytest.mark.parametrize("ticks", range(25))
async def test_a_request_cancelled_at_any_point_leaves_no_run_in_progress(
    ticks: int, policy: DisconnectPolicy
) -> None:
    """Each step of the scheduler is tried as the moment in which the client goes away."""
    async with open_supervisor_harness(EventReplayAgent(SCRIPT), BlockableStore()) as harness:
        with trio.CancelScope() as request:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(listen, harness, policy)
                for _ in range(ticks):
                    await trio.lowlevel.checkpoint()
                request.cancel()
        with trio.fail_after(5):
            await harness.services.registry.wait_empty()
            found = await harness.record()
            assert isinstance(found, EndedRun | NoRun)
            if isinstance(found, EndedRun):
                assert await harness.logged() != []
        harness.check_nothing_left()


async def test_interrupt_a_run_ends_with_its_last_listener() -> None:
    agent = EventReplayAgent(SCRIPT, holds=True)
    async with open_supervisor_harness(agent) as harness:
        run, ticket = await harness.supervisor.start(harness.make_spec())
        async with attach(run, ticket):
            await agent.said_all.wait()
        await run.ended.wait()
        record = await harness.ended()
        assert (record.outcome.status, record.outcome.reason) == (
            Status.INCOMPLETE,
            Reason.CLIENT_DISCONNECTED,
        )
        assert len(record.items) == 3


async def test_grace_a_listener_that_comes_back_hears_everything(mock_clock: MockClock) -> None:
    agent = EventReplayAgent(SCRIPT, holds=True)
    async with open_supervisor_harness(agent, interval=0.0) as harness:
        run, ticket = await harness.supervisor.start(
            harness.make_spec(policy=DisconnectPolicy(30.0))
        )
        async with attach(run, ticket):
            await agent.said_all.wait()
        await wait_all_tasks_blocked()
        mock_clock.jump(29.0)
        async with attach(run, run.clients.connect()) as reader:
            await wait_all_tasks_blocked()
            mock_clock.jump(60.0)
            await wait_all_tasks_blocked()
            agent.may_end.set()
            heard = await read_all(reader)
        await run.ended.wait()
        assert heard == await harness.logged()
        assert (await harness.ended()).outcome.status is Status.COMPLETED


async def test_grace_does_not_last_for_ever(mock_clock: MockClock) -> None:
    agent = EventReplayAgent(SCRIPT, holds=True)
    async with open_supervisor_harness(agent, interval=0.0) as harness:
        run, ticket = await harness.supervisor.start(
            harness.make_spec(policy=DisconnectPolicy(30.0))
        )
        await agent.said_all.wait()
        ticket.disconnect()
        await wait_all_tasks_blocked()
        mock_clock.jump(31.0)
        await run.ended.wait()
        assert (await harness.ended()).outcome.reason is Reason.CLIENT_DISCONNECTED


async def test_detach_a_run_goes_on_alone() -> None:
    agent = EventReplayAgent(SCRIPT, holds=True)
    async with open_supervisor_harness(agent) as harness:
        run, ticket = await harness.supervisor.start(harness.make_spec(policy=DETACH))
        ticket.disconnect()
        await agent.said_all.wait()
        assert isinstance(await harness.record(), LiveRun)
        agent.may_end.set()
        await run.ended.wait()
        assert (await harness.ended()).outcome.status is Status.COMPLETED


async def test_the_end_of_the_server_ends_its_runs() -> None:
    agents = {
        "run-1": EventReplayAgent(SCRIPT, holds=True),
        "run-2": EventReplayAgent(SCRIPT, holds=True),
    }
    async with open_supervisor_harness(agents) as harness:
        for run_id, agent in agents.items():
            await harness.supervisor.start(harness.make_spec(run_id, DETACH))
            await agent.said_all.wait()
    for run_id in agents:
        record = await harness.ended(run_id)
        assert record.outcome.reason is Reason.SERVER_SHUTDOWN
        assert len(record.items) == 3
    harness.check_nothing_left()


async def test_what_is_not_kept_does_not_touch_the_store() -> None:
    store = BlockableStore()
    async with open_supervisor_harness(EventReplayAgent(SCRIPT), store) as harness:
        run, _ = await harness.supervisor.start(harness.make_spec(keep=Persistence.NONE))
        await run.ended.wait()
    assert store.calls == []
