"""Runs that the server owns: how they begin, who may leave, and what is never left behind."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.changes import Ended
from hermes_trio.core.events import Event, Text, ToolCompleted, ToolStarted
from hermes_trio.core.outcome import Reason, Status
from hermes_trio.core.records import EndedRun, LiveRun, NoRun, Ownership
from hermes_trio.runs.disconnects import DETACH, INTERRUPT, DisconnectPolicy
from hermes_trio.runs.spec import Persistence
from hermes_trio.runs.supervisor import attach
from hermes_trio.runs.tracker import RunLimits
from hermes_trio.stores.base import StoreError
from tests.runs.house import Gated, House, open_house, whole
from tests.support.run_harness import EventReplayAgent

SCRIPT: list[Event] = [
    Text("one "),
    ToolStarted("a", "terminal"),
    ToolCompleted("a", "ok"),
    Text("two"),
]


async def listen(house: House, policy: DisconnectPolicy = INTERRUPT) -> None:
    """A client that starts a run and reads it to its end."""
    run, ticket = await house.supervisor.start(house.order(policy=policy))
    async with attach(run, ticket, applies_backpressure=True) as reader:
        await whole(reader)


async def test_start_returns_when_the_store_knows_of_the_run() -> None:
    store, agent = Gated(), EventReplayAgent(SCRIPT, holds=True)
    store.doors["begin"] = trio.Event()
    async with open_house(agent, store) as house, trio.open_nursery() as nursery:
        nursery.start_soon(listen, house)
        await wait_all_tasks_blocked()
        assert store.asked == ["begin"]
        assert await house.record() == NoRun()
        assert not agent.said_all.is_set()
        store.doors["begin"].set()
        await agent.said_all.wait()
        assert isinstance(await house.record(), LiveRun)
        agent.may_end.set()
    assert (await house.ended()).outcome.status is Status.COMPLETED


async def test_a_store_that_refuses_leaves_nothing() -> None:
    store, agent = Gated(), EventReplayAgent(SCRIPT)
    store.broken.add("begin")
    async with open_house(agent, store) as house:
        with pytest.raises(StoreError, match="the disk is full"):
            await house.supervisor.start(house.order())
        house.check_nothing_left()
        assert await house.record() == NoRun()
        assert not agent.said_all.is_set()
        store.broken.clear()
        await listen(house)
        await house.services.registry.wait_empty()
        house.check_nothing_left()


async def test_a_run_that_begins_too_late_is_ended(autojump_clock: MockClock) -> None:
    store = Gated()
    store.doors["begin"] = trio.Event()
    async with open_house(EventReplayAgent(SCRIPT), store, RunLimits(save=10.0)) as house:
        order = house.order()
        with pytest.raises(StoreError, match="too long"):
            await house.supervisor.start(order)
        house.check_nothing_left()
        store.doors["begin"].set()
        await store.begin_run(
            order.header, Ownership("this process")
        )  # what was left in the store's queue
        await trio.sleep(2)
        assert (await house.ended()).outcome.status is Status.FAILED
        assert isinstance((await house.logged())[-1], Ended)


@pytest.mark.parametrize("policy", [INTERRUPT, DisconnectPolicy(0.0), DETACH])
@pytest.mark.parametrize("ticks", range(25))
async def test_a_request_cancelled_at_any_point_leaves_no_run_in_progress(
    ticks: int, policy: DisconnectPolicy
) -> None:
    """Each step of the scheduler is tried as the moment in which the client goes away."""
    async with open_house(EventReplayAgent(SCRIPT), Gated()) as house:
        with trio.CancelScope() as request:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(listen, house, policy)
                for _ in range(ticks):
                    await trio.lowlevel.checkpoint()
                request.cancel()
        with trio.fail_after(5):
            await house.services.registry.wait_empty()
            found = await house.record()
            assert isinstance(found, EndedRun | NoRun)
            if isinstance(found, EndedRun):
                assert await house.logged() != []
        house.check_nothing_left()


async def test_interrupt_a_run_ends_with_its_last_listener() -> None:
    agent = EventReplayAgent(SCRIPT, holds=True)
    async with open_house(agent) as house:
        run, ticket = await house.supervisor.start(house.order())
        async with attach(run, ticket):
            await agent.said_all.wait()
        await run.ended.wait()
        record = await house.ended()
        assert (record.outcome.status, record.outcome.reason) == (
            Status.INCOMPLETE,
            Reason.CLIENT_DISCONNECTED,
        )
        assert len(record.items) == 3


async def test_grace_a_listener_that_comes_back_hears_everything(mock_clock: MockClock) -> None:
    agent = EventReplayAgent(SCRIPT, holds=True)
    async with open_house(agent, interval=0.0) as house:
        run, ticket = await house.supervisor.start(house.order(policy=DisconnectPolicy(30.0)))
        async with attach(run, ticket):
            await agent.said_all.wait()
        await wait_all_tasks_blocked()
        mock_clock.jump(29.0)
        async with attach(run, run.clients.connect()) as reader:
            await wait_all_tasks_blocked()
            mock_clock.jump(60.0)
            await wait_all_tasks_blocked()
            agent.may_end.set()
            heard = await whole(reader)
        await run.ended.wait()
        assert heard == await house.logged()
        assert (await house.ended()).outcome.status is Status.COMPLETED


async def test_grace_does_not_last_for_ever(mock_clock: MockClock) -> None:
    agent = EventReplayAgent(SCRIPT, holds=True)
    async with open_house(agent, interval=0.0) as house:
        run, ticket = await house.supervisor.start(house.order(policy=DisconnectPolicy(30.0)))
        await agent.said_all.wait()
        ticket.disconnect()
        await wait_all_tasks_blocked()
        mock_clock.jump(31.0)
        await run.ended.wait()
        assert (await house.ended()).outcome.reason is Reason.CLIENT_DISCONNECTED


async def test_detach_a_run_goes_on_alone() -> None:
    agent = EventReplayAgent(SCRIPT, holds=True)
    async with open_house(agent) as house:
        run, ticket = await house.supervisor.start(house.order(policy=DETACH))
        ticket.disconnect()
        await agent.said_all.wait()
        assert isinstance(await house.record(), LiveRun)
        agent.may_end.set()
        await run.ended.wait()
        assert (await house.ended()).outcome.status is Status.COMPLETED


async def test_the_end_of_the_server_ends_its_runs() -> None:
    agents = {
        "run-1": EventReplayAgent(SCRIPT, holds=True),
        "run-2": EventReplayAgent(SCRIPT, holds=True),
    }
    async with open_house(agents) as house:
        for run_id, agent in agents.items():
            await house.supervisor.start(house.order(run_id, DETACH))
            await agent.said_all.wait()
    for run_id in agents:
        record = await house.ended(run_id)
        assert record.outcome.reason is Reason.SERVER_SHUTDOWN
        assert len(record.items) == 3
    house.check_nothing_left()


async def test_what_is_not_kept_does_not_touch_the_store() -> None:
    store = Gated()
    async with open_house(EventReplayAgent(SCRIPT), store) as house:
        run, _ = await house.supervisor.start(house.order(keep=Persistence.NONE))
        await run.ended.wait()
    assert store.asked == []
