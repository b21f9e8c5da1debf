"""A limit on the runs of a principal that nodes obey together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.access import Quota
from hermes_trio.core.errors import ApiError
from hermes_trio.runs.admission import Admission
from hermes_trio.runs.cluster_runs import RETRY_SECONDS, WAIT_SECONDS, ClusterRuns
from hermes_trio.stores.base import StoreError
from tests.support.shared_store import SharedMemoryStore

LIMIT = 2


@asynccontextmanager
async def two_nodes(
    quota: Quota | None = None,
) -> AsyncIterator[tuple[SharedMemoryStore, Admission, Admission]]:
    """The admission of two nodes that share a store."""
    store = SharedMemoryStore()
    limits = [ClusterRuns(store, node, LIMIT) for node in ("a", "b")]
    first, second = (Admission(0, quota=quota or Quota()) for _ in limits)
    first.cluster, second.cluster = limits
    async with trio.open_nursery() as nursery:
        for limit in limits:
            nursery.start_soon(limit.run)
        yield store, first, second
        nursery.cancel_scope.cancel()


async def refused(admission: Admission, principal: str = "ann") -> ApiError:
    with pytest.raises(ApiError) as caught:
        await admission.admit_run(principal)
    return caught.value


async def test_without_a_shared_limit_admission_is_that_of_the_process() -> None:
    admission = Admission(1)
    slot = await admission.admit_run("ann")
    assert (await refused(admission)).status == 429
    slot.release()
    await admission.admit_run("ann")


async def test_nodes_count_the_runs_of_a_principal_together(autojump_clock: MockClock) -> None:
    async with two_nodes() as (store, first, second):
        slots = [await first.admit_run("ann"), await second.admit_run("ann")]
        for admission in (first, second):
            error = await refused(admission)
            assert (error.status, error.code) == (429, "rate_limit_exceeded")
            assert error.headers["Retry-After"] == "1"
            assert "on all nodes (max 2)" in error.message
        assert (first.in_use, second.in_use) == (1, 1)  # a refused run holds nothing
        await second.admit_run("bob")
        slots[0].activate()
        slots[0].release()
        slots[0].release()
        await wait_all_tasks_blocked()
        await second.admit_run("ann")
        assert len(store.run_slots) == 3


async def test_a_slot_that_was_not_used_is_given_back(autojump_clock: MockClock) -> None:
    async with two_nodes() as (store, first, _):
        (await first.admit_run("ann")).release_unused()
        await wait_all_tasks_blocked()
        assert store.run_slots == {}
        assert first.in_use == 0


async def test_the_next_run_waits_for_slots_that_are_being_given_back(
    autojump_clock: MockClock,
) -> None:
    """A client whose run has ended may start the next one at once."""
    async with two_nodes() as (_, first, _second):
        slots = [await first.admit_run("ann") for _ in range(LIMIT)]
        slots[0].release()
        await first.admit_run("ann")


async def test_a_refused_run_does_not_count_towards_the_rate(autojump_clock: MockClock) -> None:
    async with two_nodes(Quota(runs_per_minute=3)) as (_, first, second):
        slots = [await second.admit_run("ann") for _ in range(LIMIT)]
        await refused(first)
        status = first.rate_status("ann")
        assert status is not None
        assert status.remaining == 3
        slots[0].release()
        await wait_all_tasks_blocked()
        await first.admit_run("ann")


async def test_the_slots_of_a_dead_node_count_for_nothing(autojump_clock: MockClock) -> None:
    async with two_nodes() as (store, first, second):
        for _ in range(LIMIT):
            await first.admit_run("ann")
        await refused(second)
        store.dead.add("a")
        await second.admit_run("ann")


async def test_without_the_store_no_run_is_admitted(autojump_clock: MockClock) -> None:
    async with two_nodes() as (store, first, _):
        store.broken.add("take_run_slot")
        with pytest.raises(StoreError):
            await first.admit_run("ann")
        assert first.in_use == 0
        store.broken.clear()
        for _ in range(LIMIT):
            await first.admit_run("ann")


async def test_slots_are_given_back_when_the_store_works_again(autojump_clock: MockClock) -> None:
    async with two_nodes() as (store, first, second):
        slots = [await first.admit_run("ann") for _ in range(LIMIT)]
        store.broken.add("give_back_run_slots")
        slots[0].release()
        began = trio.current_time()
        await refused(first)  # it has waited for the slot
        assert trio.current_time() - began == WAIT_SECONDS
        await refused(second)
        store.broken.clear()
        await trio.sleep(RETRY_SECONDS)
        await wait_all_tasks_blocked()
        await second.admit_run("ann")


async def test_a_client_that_leaves_while_it_waits_gives_its_slot_back(
    autojump_clock: MockClock,
) -> None:
    async with two_nodes() as (store, first, _):
        with trio.CancelScope() as scope:
            scope.cancel()
            await first.admit_run("ann")
        await wait_all_tasks_blocked()
        assert store.run_slots == {}
        assert first.in_use == 0
