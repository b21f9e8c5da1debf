"""The lease of a node: renewed, lost, given back; and runs that have another owner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog
import trio
from trio.testing import MockClock

from hermes_trio.core.changes import Change, Ended
from hermes_trio.core.events import Event, Text
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.records import EndedRun, LiveRun, Node, Ownership, TakenOverRun
from hermes_trio.runs.leases import LEAVE_SECONDS, LeaseStatus, open_lease
from hermes_trio.runs.persistence import RETRY_SECONDS
from hermes_trio.runs.recovery import recover
from hermes_trio.runs.run import Run
from hermes_trio.runs.spec import Items, Persistence
from hermes_trio.runs.supervisor import attach
from hermes_trio.stores.base import LeasedStore, StoreError
from hermes_trio.stores.sqlite import MemoryStore
from tests.runs.supervisor_harness import (
    OWNER,
    BlockableStore,
    SupervisorHarness,
    header_of,
    open_supervisor_harness,
    read_all,
)
from tests.support.run_harness import EventReplayAgent

SAID: list[Event] = [Text("one "), Text("two")]
LEASE = 8.0


class LeasedMemoryStore(BlockableStore):
    """A store with leases, in memory. It blocks and fails at "renew", too."""

    lease_seconds = LEASE

    def __init__(self) -> None:
        super().__init__()
        self.nodes: dict[str, float] = {}  # when each renewed its lease
        self.renewals: list[float] = []
        self.has_lapsed = False  # the next renewal is told so
        self.has_dead_nodes = False

    async def join(self, node: str, address: str) -> None:
        await trio.lowlevel.checkpoint()
        self.nodes[node] = trio.current_time()

    async def renew_lease(self, node: str) -> bool:
        await self._pass("renew")
        await trio.lowlevel.checkpoint()
        self.nodes[node] = trio.current_time()
        self.renewals.append(trio.current_time())
        had_lapsed, self.has_lapsed = self.has_lapsed, False
        return not had_lapsed

    async def leave(self, node: str) -> None:
        await self._pass("leave")
        await trio.lowlevel.checkpoint()
        del self.nodes[node]

    async def list_nodes(self) -> tuple[Node, ...]:
        return ()

    async def find_owner(self, principal: str, run_id: str) -> str:
        return ""

    async def take_over_runs(self, node: str) -> tuple[TakenOverRun, ...]:
        await self._pass("take over")
        return await super().take_over_runs(node) if self.has_dead_nodes else ()


def no_items(ended: EndedRun) -> Items:
    return ()


@asynccontextmanager
async def open_node(
    store: LeasedMemoryStore, agent: EventReplayAgent
) -> AsyncIterator[tuple[SupervisorHarness, LeaseStatus]]:
    """A node with a lease, whose runs have an agent."""
    async with (
        open_supervisor_harness(agent, store) as harness,
        open_lease(harness.services, no_items, "here") as status,
    ):
        yield harness, status


async def receive_all(run: Run, into: list[Change]) -> None:
    with run.log.subscribe() as reader:
        async for changes in reader:
            into += changes


def texts(lines: list[structlog.typing.EventDict]) -> list[str]:
    return [line["event"] for line in lines]


# -- the lease --


async def test_a_lease_is_renewed_in_time_and_given_back(autojump_clock: MockClock) -> None:
    store = LeasedMemoryStore()
    assert isinstance(store, LeasedStore)
    async with open_node(store, EventReplayAgent([])) as (_, status):
        assert store.nodes == {OWNER: 0.0}
        await trio.sleep(100 * LEASE)
        assert status.problem == ""
    gaps = [
        later - earlier
        for earlier, later in zip([0.0, *store.renewals], store.renewals, strict=False)
    ]
    assert max(gaps) <= LEASE / 4
    assert len(gaps) <= 600
    assert store.nodes == {}


@pytest.mark.parametrize("is_hanging", [True, False])
async def test_a_node_that_cannot_renew_stops_its_runs_after_half_its_lease(
    autojump_clock: MockClock, is_hanging: bool
) -> None:
    store, agent = LeasedMemoryStore(), EventReplayAgent(SAID, holds=True)
    async with open_node(store, agent) as (harness, status):
        run, _ = await harness.supervisor.start(harness.make_spec())
        await trio.sleep(10 * LEASE)
        if is_hanging:
            store.blocked["renew"] = trio.Event()
        else:
            store.broken.add("renew")
        last = store.renewals[-1]
        with trio.fail_after(LEASE):
            await run.ended.wait()
        assert trio.current_time() == pytest.approx(last + LEASE / 2)
        assert status.problem != ""
        record = await harness.ended()
        assert (record.outcome.status, record.outcome.reason) == (
            Status.FAILED,
            Reason.SERVER_ERROR,
        )
        await trio.sleep(10 * LEASE)
        assert status.problem != ""
        store.broken.clear()
        if is_hanging:
            store.blocked.pop("renew").set()
        await trio.sleep(LEASE)
        assert status.problem == ""
        # It is as good as new.
        later, _ = await harness.supervisor.start(harness.make_spec("run-2"))
        await trio.sleep(LEASE)
        assert not later.ended.is_set()
        agent.may_end.set()
        await later.ended.wait()
        assert (await harness.ended("run-2")).outcome == Outcome(Status.COMPLETED)


async def test_a_short_failure_to_renew_stops_nothing(autojump_clock: MockClock) -> None:
    store, agent = LeasedMemoryStore(), EventReplayAgent(SAID, holds=True)
    async with open_node(store, agent) as (harness, status):
        run, _ = await harness.supervisor.start(harness.make_spec())
        for _ in range(20):
            await trio.sleep(LEASE)
            store.broken.add("renew")
            await trio.sleep(LEASE / 8)
            store.broken.clear()
            assert status.problem == ""
        assert not run.ended.is_set()


async def test_runs_that_cannot_be_taken_over_go_on(autojump_clock: MockClock) -> None:
    store, agent = LeasedMemoryStore(), EventReplayAgent(SAID, holds=True)
    async with open_node(store, agent) as (harness, _):
        store.broken.add("renew")
        run, _ = await harness.supervisor.start(harness.make_spec(keep=Persistence.FINAL))
        await trio.sleep(2 * LEASE)
        assert not run.ended.is_set()


async def test_a_node_that_was_frozen_stops_its_runs(autojump_clock: MockClock) -> None:
    """It learns from its next renewal that others have taken it for dead."""
    store, agent = LeasedMemoryStore(), EventReplayAgent(SAID, holds=True)
    async with open_node(store, agent) as (harness, status):
        run, _ = await harness.supervisor.start(harness.make_spec())
        store.has_lapsed = True
        with trio.fail_after(LEASE / 4):
            await run.ended.wait()
        assert status.problem == ""
        assert (await harness.ended()).outcome.reason is Reason.SERVER_ERROR


async def test_a_fenced_run_whose_end_is_not_stored_announces_none(
    autojump_clock: MockClock,
) -> None:
    """Another node may be about to end it. If none does, the end is stored later."""
    store, agent = LeasedMemoryStore(), EventReplayAgent(SAID, holds=True)
    async with open_node(store, agent) as (harness, _):
        run, _ = await harness.supervisor.start(harness.make_spec())
        received: list[Change] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive_all, run, received)
            await agent.said_all.wait()
            await trio.sleep(1)
            store.broken |= {"renew", "append", "end"}
            await run.ended.wait()
        assert not any(isinstance(change, Ended) for change in received)
        assert isinstance(await harness.record(), LiveRun)
        store.broken.clear()
        await trio.sleep(2 * RETRY_SECONDS)
        assert (await harness.ended()).outcome.failure.kind == "store_error"


async def test_the_end_of_a_run_waits_for_a_store_that_fails_for_a_moment(
    autojump_clock: MockClock,
) -> None:
    store, agent = LeasedMemoryStore(), EventReplayAgent(SAID, holds=True)
    async with open_node(store, agent) as (harness, _):
        run, _ = await harness.supervisor.start(harness.make_spec())
        received: list[Change] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive_all, run, received)
            store.broken.add("end")
            agent.may_end.set()
            await trio.sleep(1.5 * RETRY_SECONDS)
            assert not any(isinstance(change, Ended) for change in received)
            store.broken.clear()
            await run.ended.wait()
        assert isinstance(received[-1], Ended)
        assert received[-1].outcome == Outcome(Status.COMPLETED)
        assert (await harness.ended()).outcome == Outcome(Status.COMPLETED)


async def test_an_end_that_is_not_stored_is_not_announced(autojump_clock: MockClock) -> None:
    """The lease is held, but it may lapse before the end is stored, and another node may end the run."""
    store, agent = LeasedMemoryStore(), EventReplayAgent(SAID, holds=True)
    async with open_node(store, agent) as (harness, _):
        run, _ = await harness.supervisor.start(harness.make_spec())
        received: list[Change] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive_all, run, received)
            store.broken.add("end")
            agent.may_end.set()
            await run.ended.wait()
        assert not any(isinstance(change, Ended) for change in received)
        assert isinstance(await harness.record(), LiveRun)
        store.broken.clear()
        await trio.sleep(2 * RETRY_SECONDS)
        assert (await harness.ended()).outcome.failure.kind == "store_error"


async def test_the_lease_is_renewed_while_runs_are_saved(autojump_clock: MockClock) -> None:
    store = LeasedMemoryStore()
    async with open_supervisor_harness(EventReplayAgent([]), store) as harness:
        with trio.CancelScope() as scope:
            async with open_lease(harness.services, no_items, "here"):
                scope.cancel()
                with trio.CancelScope(shield=True):
                    await trio.sleep(10 * LEASE)
        assert store.renewals[-1] > 9 * LEASE
        assert store.nodes == {}


@pytest.mark.parametrize("is_hanging", [True, False])
async def test_a_lease_that_cannot_be_given_back_keeps_nothing_waiting(
    autojump_clock: MockClock, is_hanging: bool
) -> None:
    store = LeasedMemoryStore()
    with structlog.testing.capture_logs() as lines:
        async with open_node(store, EventReplayAgent([])):
            if is_hanging:
                store.blocked["leave"] = trio.Event()
            else:
                store.broken.add("leave")
    assert trio.current_time() == (LEAVE_SECONDS if is_hanging else 0.0)
    assert "the lease was not given back" in texts(lines)


async def test_a_node_that_cannot_join_does_not_start(autojump_clock: MockClock) -> None:
    class Unreachable(LeasedMemoryStore):
        async def join(self, node: str, address: str) -> None:
            raise StoreError("unreachable")

    async with open_supervisor_harness(EventReplayAgent([]), Unreachable()) as harness:
        with pytest.raises(StoreError, match="unreachable"):
            async with open_lease(harness.services, no_items, "here"):
                pass


# -- runs with another owner --


async def test_a_run_that_was_taken_over_ends_without_a_word(autojump_clock: MockClock) -> None:
    """Learned when its log is written: clients get nothing more."""
    store, agent = LeasedMemoryStore(), EventReplayAgent([*SAID], holds=True)
    async with open_node(store, agent) as (harness, _):
        run, client = await harness.supervisor.start(harness.make_spec())
        await agent.said_all.wait()
        await trio.sleep(1)
        await MemoryStore.take_over_runs(store, "other")
        with structlog.testing.capture_logs() as lines:
            async with attach(run, client) as reader:
                run._tracker.record(Text("more"))
                received = await read_all(reader)
            await run.ended.wait()
        assert not any(isinstance(change, Ended) for change in received)
        assert [line["event"] for line in lines if line["event"].startswith("run ")] == [
            "run was taken over"
        ]
        assert isinstance(await harness.record(), LiveRun)
        assert store.of("end") == []
        harness.check_nothing_left()


async def test_the_end_of_a_run_that_was_taken_over_is_not_announced(
    autojump_clock: MockClock,
) -> None:
    """Learned when its end is saved."""
    store, agent = LeasedMemoryStore(), EventReplayAgent(SAID, holds=True)
    async with open_node(store, agent) as (harness, _):
        run, client = await harness.supervisor.start(harness.make_spec())
        await agent.said_all.wait()
        await trio.sleep(1)
        [taken] = await MemoryStore.take_over_runs(store, "other")
        with structlog.testing.capture_logs() as lines:
            async with attach(run, client) as reader:
                agent.may_end.set()
                received = await read_all(reader)
            await run.ended.wait()
        assert not any(isinstance(change, Ended) for change in received)
        assert "run was taken over" in texts(lines)
        assert "run ended" not in texts(lines)
        assert (taken.ownership, await harness.record()) == (
            Ownership("other", 1),
            LiveRun(run.header),
        )
        harness.check_nothing_left()


async def test_other_runs_are_not_touched(autojump_clock: MockClock) -> None:
    store, agent = LeasedMemoryStore(), EventReplayAgent(SAID, holds=True)
    async with open_node(store, agent) as (harness, _):
        lost, _ = await harness.supervisor.start(harness.make_spec("run-1"))
        await trio.sleep(1)
        await MemoryStore.take_over_runs(store, "other")
        kept, _ = await harness.supervisor.start(harness.make_spec("run-2"))
        for run in (lost, kept):
            run._tracker.record(Text(" three"))
        await lost.ended.wait()
        await trio.sleep(LEASE)
        assert not kept.ended.is_set()
        agent.may_end.set()
        await kept.ended.wait()
        assert (await harness.ended("run-2")).outcome == Outcome(Status.COMPLETED)


async def test_an_end_that_comes_too_late_is_dropped(autojump_clock: MockClock) -> None:
    store, agent = LeasedMemoryStore(), EventReplayAgent(SAID)
    store.broken.add("end")
    async with open_node(store, agent) as (harness, _):
        run, _ = await harness.supervisor.start(harness.make_spec())
        await run.ended.wait()
        assert await recover_as(store, "other") == 0
        store.broken.clear()
        assert await recover_as(store, "other") == 1
        with structlog.testing.capture_logs() as lines:
            await trio.sleep(2 * RETRY_SECONDS)
        assert texts(lines) == ["run was taken over"]
        assert (await harness.ended()).outcome.reason is Reason.PROCESS_DIED


async def recover_as(store: LeasedMemoryStore, node: str) -> int:
    """Recover as another node, for which all others are dead; 0 if the store fails."""
    store.has_dead_nodes = True
    try:
        return await recover(store, node, no_items)
    except StoreError:
        return 0
    finally:
        store.has_dead_nodes = False


# -- runs of dead nodes --


async def test_runs_of_dead_nodes_are_ended(autojump_clock: MockClock) -> None:
    store = LeasedMemoryStore()
    async with open_node(store, EventReplayAgent([])) as (harness, _):
        await trio.sleep(100)
        await store.begin_run(header_of("run-1"), Ownership("dead"))
        store.has_dead_nodes = True
        await trio.sleep(1.3)
        assert (await harness.ended()).outcome.reason is Reason.PROCESS_DIED


async def test_a_node_without_a_lease_takes_nothing_over(autojump_clock: MockClock) -> None:
    store = LeasedMemoryStore()
    async with open_node(store, EventReplayAgent([])) as (_, status):
        store.broken.add("renew")
        await trio.sleep(LEASE)
        assert status.problem != ""
        store.calls.clear()
        await trio.sleep(LEASE)
        assert set(store.calls) == {"renew"}


async def test_a_take_over_that_fails_is_tried_again(autojump_clock: MockClock) -> None:
    """The log says so once."""
    store = LeasedMemoryStore()
    await store.begin_run(header_of("run-1"), Ownership("dead"))
    store.has_dead_nodes = True
    store.broken |= {"end"}
    with structlog.testing.capture_logs() as lines:
        async with open_node(store, EventReplayAgent([])) as (harness, _):
            await trio.sleep(10)
            assert texts(lines) == ["the runs of dead nodes cannot be ended"]
            assert isinstance(await harness.record(), LiveRun)
            store.broken.clear()
            await trio.sleep(1.3)
            assert (await harness.ended()).outcome.reason is Reason.PROCESS_DIED


async def test_a_run_that_cannot_be_ended_keeps_no_other_from_it() -> None:
    store = MemoryStore()
    for name in ("run-1", "run-2"):
        await store.begin_run(header_of(name), Ownership("dead"))

    def items(ended: EndedRun) -> Items:
        if ended.header.run_id == "run-1":
            raise StoreError("a bug")
        return ()

    for _ in range(2):
        with pytest.raises(StoreError, match="a bug"):
            await recover(store, "me", items)
        assert isinstance(await store.find_run("ann", "run-1"), LiveRun)
        assert isinstance(await store.find_run("ann", "run-2"), EndedRun)
    assert await recover(store, "me", no_items) == 1


class OvertakenStore(MemoryStore):
    """A store in which another node takes over, too, before the first can end a run."""

    async def take_over_runs(self, node: str) -> tuple[TakenOverRun, ...]:
        taken = await super().take_over_runs(node)
        if taken[0].ownership.epoch > 1:  # the other is alive
            return ()
        await super().take_over_runs("third")
        return taken


async def test_recovery_leaves_a_run_to_the_node_that_took_it_over_meanwhile() -> None:
    store = OvertakenStore()
    await store.begin_run(header_of("run-1"), Ownership("dead"))
    with structlog.testing.capture_logs() as lines:
        assert await recover(store, "me", no_items) == 0
    assert texts(lines) == ["run was taken over"]
    assert isinstance(await store.find_run("ann", "run-1"), LiveRun)


async def test_a_store_that_is_not_shared_is_recovered_first() -> None:
    store = MemoryStore()
    await store.begin_run(header_of("run-1"), Ownership("dead"))
    async with (
        open_supervisor_harness(EventReplayAgent([]), store) as harness,
        open_lease(harness.services, no_items, "here") as status,
    ):
        assert status.problem == ""
        assert (await harness.ended()).outcome.reason is Reason.PROCESS_DIED
