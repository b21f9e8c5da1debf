"""Two nodes on one store: one executes runs, clients of the other follow, stop and answer them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import evolve, frozen
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.changes import Ended
from hermes_trio.core.events import Choice, Text
from hermes_trio.core.outcome import Reason, Status
from hermes_trio.core.records import Command
from hermes_trio.runs import cluster as cluster_module
from hermes_trio.runs.approvals import ApprovalResponse, NotOffered, NotPending
from hermes_trio.runs.cluster import Cluster, OwnerUnreachable
from hermes_trio.runs.disconnects import DisconnectPolicy
from hermes_trio.runs.registry import RunRegistry
from hermes_trio.runs.supervisor import attach
from hermes_trio.stores.base import StoreError
from tests.runs.supervisor_harness import (
    OWNER,
    SupervisorHarness,
    header_of,
    open_supervisor_harness,
    read_all,
)
from tests.runs.test_approvals import RM, Asker
from tests.support.run_harness import EventReplayAgent
from tests.support.shared_store import SharedMemoryStore

HEADER = header_of("run-1")
SAID = [Text("one "), Text("two")]
ONCE = ApprovalResponse(Choice.ONCE)


@frozen
class Nodes:
    """A node with runs, and another one."""

    owner: SupervisorHarness
    store: SharedMemoryStore
    own: Cluster
    other: Cluster


@asynccontextmanager
async def open_nodes(agent: Any, *, can_listen: bool = True) -> AsyncIterator[Nodes]:
    store = SharedMemoryStore(can_listen)
    async with open_supervisor_harness(agent, store) as owner, trio.open_nursery() as nursery:
        own = Cluster(store, store, OWNER, owner.services.registry)
        other = Cluster(store, store, "other", RunRegistry())
        nursery.start_soon(own.run)
        nursery.start_soon(other.run)
        yield Nodes(owner, store, own, other)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("can_listen", [False, True])
async def test_a_run_is_followed_on_another_node(
    can_listen: bool, autojump_clock: MockClock
) -> None:
    agent = EventReplayAgent(SAID, holds=True)
    async with open_nodes(agent, can_listen=can_listen) as nodes:
        run, client = await start(nodes)
        async with attach(run, client) as local, trio.open_nursery() as nursery:
            followed: list[Any] = []

            async def follow() -> None:
                async with nodes.other.follow(HEADER) as reader:
                    followed.extend(await read_all(reader))

            nursery.start_soon(follow)
            await agent.said_all.wait()
            agent.may_end.set()
            read = await read_all(local)
        assert followed == read
        assert isinstance(read[-1], Ended)


async def start(nodes: Nodes, **changes: Any) -> Any:
    nodes.store.owners["run-1"] = OWNER
    return await nodes.owner.supervisor.start(evolve(nodes.owner.make_spec(), **changes))


async def test_growth_is_noticed_at_once(autojump_clock: MockClock) -> None:
    agent = EventReplayAgent(SAID, holds=True)
    async with open_nodes(agent) as nodes:
        run, client = await start(nodes)
        async with attach(run, client), nodes.other.follow(HEADER) as reader:
            await trio.sleep(10)
            await reader.receive()
            await agent.said_all.wait()
            agent.may_end.set()
            with trio.fail_after(cluster_module.LOOK_SECONDS / 4):
                assert isinstance((await reader.receive())[-1], Ended)


async def test_a_follower_counts_as_a_client(autojump_clock: MockClock) -> None:
    agent = EventReplayAgent(SAID, holds=True)
    async with open_nodes(agent) as nodes:
        run, client = await start(nodes, on_disconnect=DisconnectPolicy(5.0))
        async with nodes.other.follow(HEADER):
            client.disconnect()
            await trio.sleep(10 * cluster_module.WATCH_SECONDS)
            assert not run.ended.is_set()
        with trio.fail_after(60):
            await run.ended.wait()
        assert (await nodes.owner.ended()).outcome.reason is Reason.CLIENT_DISCONNECTED


async def test_a_follower_that_vanishes_does_not_count_for_ever(autojump_clock: MockClock) -> None:
    agent = EventReplayAgent(SAID, holds=True)
    async with open_nodes(agent) as nodes:
        run, client = await start(nodes, on_disconnect=DisconnectPolicy(5.0))
        command = Command("c", "ann", "run-1", "watch", {"node": "gone"})
        await nodes.store.send_command(command)
        await trio.sleep(1)
        client.disconnect()
        await trio.sleep(cluster_module.WATCH_SECONDS - 2)
        assert not run.ended.is_set()
        with trio.fail_after(60):
            await run.ended.wait()


@pytest.mark.parametrize("can_listen", [False, True])
async def test_a_run_is_stopped_from_another_node(
    can_listen: bool, autojump_clock: MockClock
) -> None:
    agent = EventReplayAgent(SAID, holds=True)
    async with open_nodes(agent, can_listen=can_listen) as nodes:
        await start(nodes)
        await agent.said_all.wait()
        await nodes.other.stop("ann", "run-1")
        with trio.fail_after(5):
            await nodes.other.wait_ended(HEADER)
        ended = await nodes.owner.ended()
        assert (ended.outcome.status, ended.outcome.reason) == (
            Status.CANCELLED,
            Reason.STOP_REQUESTED,
        )
        nodes.owner.check_nothing_left()


async def test_stopping_a_run_that_has_ended_is_harmless(autojump_clock: MockClock) -> None:
    async with open_nodes(EventReplayAgent(SAID)) as nodes:
        run, _ = await start(nodes)
        await run.ended.wait()
        with trio.fail_after(5):
            await nodes.other.stop("ann", "run-1")
        assert (await nodes.owner.ended()).outcome.status is Status.COMPLETED


@pytest.mark.parametrize("can_listen", [False, True])
async def test_an_approval_is_given_on_another_node(
    can_listen: bool, autojump_clock: MockClock
) -> None:
    agent = Asker(RM)
    async with open_nodes(agent, can_listen=can_listen) as nodes:
        run, client = await start(nodes, can_ask=True)
        while not run.status.open_approvals:
            await trio.lowlevel.checkpoint()
        with pytest.raises(NotPending):
            await nodes.other.answer("ann", "run-1", ApprovalResponse(Choice.ONCE, "another"))
        assert await nodes.other.answer("ann", "run-1", ONCE) == 1
        await run.ended.wait()
        assert [decision.choice for decision in agent.decisions] == [Choice.ONCE]
        assert await nodes.other.answer("ann", "run-1", ONCE) == 0
        del client


async def test_an_answer_that_is_not_offered_or_cannot_be_kept(autojump_clock: MockClock) -> None:
    agent = Asker({**RM, "allow_permanent": False})
    async with open_nodes(agent) as nodes:
        run, _ = await start(nodes, can_ask=True)
        while not run.status.open_approvals:
            await trio.lowlevel.checkpoint()
        with pytest.raises(NotOffered):
            await nodes.other.answer("ann", "run-1", ApprovalResponse(Choice.ALWAYS))

        async def fail(grants: object) -> None:
            raise StoreError("the disk is full")

        nodes.store.grant = fail  # type: ignore[method-assign]
        with pytest.raises(StoreError, match="the disk is full"):
            await nodes.other.answer("ann", "run-1", ApprovalResponse(Choice.SESSION))
        assert await nodes.other.answer("ann", "run-1", ONCE) == 1


async def test_two_nodes_answer_at_once(autojump_clock: MockClock) -> None:
    agent = Asker(RM)
    async with open_nodes(agent) as nodes:
        run, _ = await start(nodes, can_ask=True)
        while not run.status.open_approvals:
            await trio.lowlevel.checkpoint()
        approval_id = run.status.open_approvals[0].approval_id
        results: list[int | str] = []

        async def answer(choice: Choice) -> None:
            try:
                answer = ApprovalResponse(choice, approval_id)
                results.append(await nodes.other.answer("ann", "run-1", answer))
            except NotPending:
                results.append("not pending")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer, Choice.ONCE)
            nursery.start_soon(answer, Choice.DENY)
        assert sorted(map(str, results)) in (["1", "not pending"], ["0", "1"])
        assert len(agent.decisions) == 1


async def test_an_owner_that_does_not_answer(autojump_clock: MockClock) -> None:
    store = SharedMemoryStore()
    async with open_supervisor_harness(EventReplayAgent(SAID, holds=True), store) as owner:
        other = Cluster(store, store, "other", RunRegistry())
        store.owners["run-1"] = OWNER
        await owner.supervisor.start(owner.make_spec())
        with pytest.raises(OwnerUnreachable):
            await other.stop("ann", "run-1")


async def test_a_store_that_fails_for_a_while_loses_no_command(autojump_clock: MockClock) -> None:
    agent = EventReplayAgent(SAID, holds=True)
    async with open_nodes(agent) as nodes:
        run, _ = await start(nodes)
        nodes.store.broken |= {"find_commands", "wait_notices"}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nodes.other.stop, "ann", "run-1")
            await trio.sleep(3)
            assert not run.ended.is_set()
            nodes.store.broken.clear()
            with trio.fail_after(5):
                await run.ended.wait()


async def test_a_command_is_executed_once_until_its_answer_is_stored(
    autojump_clock: MockClock,
) -> None:
    agent = Asker(RM)
    async with open_nodes(agent) as nodes:
        run, _ = await start(nodes, can_ask=True)
        while not run.status.open_approvals:
            await trio.lowlevel.checkpoint()
        nodes.store.broken |= {"answer_commands", "find_answer"}
        resolved: list[int] = []

        async def answer() -> None:
            resolved.append(await nodes.other.answer("ann", "run-1", ONCE))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            await trio.sleep(cluster_module.COMMAND_SECONDS - 3)
            assert [decision.choice for decision in agent.decisions] == [Choice.ONCE]
            assert nodes.store.answers == {}
            nodes.store.broken.clear()
        assert resolved == [1]


async def test_a_command_that_fails_is_answered(autojump_clock: MockClock) -> None:
    async with open_nodes(EventReplayAgent(SAID, holds=True)) as nodes:
        await start(nodes)
        await nodes.store.send_command(Command("c", "ann", "run-1", "watch", {}, "other"))
        await wait_all_tasks_blocked()
        assert await nodes.store.find_answer("c") == {"error": "the command failed"}


async def test_a_command_of_a_later_version_is_answered(autojump_clock: MockClock) -> None:
    agent = EventReplayAgent(SAID, holds=True)
    async with open_nodes(agent) as nodes:
        await start(nodes)
        await nodes.store.send_command(Command("c", "ann", "run-1", "steer", {}, "other"))
        await wait_all_tasks_blocked()
        assert await nodes.store.find_answer("c") == {}
