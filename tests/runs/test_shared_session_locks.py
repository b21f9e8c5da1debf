"""One turn at a time for each session on all nodes: locked in the process and in the store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.errors import ApiError
from hermes_trio.runs import session_locks
from hermes_trio.runs.session_locks import SharedSessionLocks
from hermes_trio.stores.base import StoreError
from tests.support.shared_store import SharedMemoryStore

BUSY = ApiError(409, "Another turn is under way.", code="session_busy")
ANN = ("ann", "s")


@asynccontextmanager
async def two_nodes(
    wait_seconds: float = 0.0,
) -> AsyncIterator[tuple[SharedMemoryStore, SharedSessionLocks, SharedSessionLocks]]:
    store = SharedMemoryStore()
    first, second = (SharedSessionLocks(wait_seconds, store, node) for node in ("a", "b"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.run)
        nursery.start_soon(second.run)
        yield store, first, second
        nursery.cancel_scope.cancel()


async def refused(locks: SharedSessionLocks) -> None:
    with pytest.raises(ApiError) as caught:
        await locks.acquire(*ANN, BUSY)
    assert caught.value is BUSY


async def test_a_session_is_locked_for_the_other_node(autojump_clock: MockClock) -> None:
    async with two_nodes() as (store, first, second):
        slot = await first.acquire(*ANN, BUSY)
        await refused(second)
        await refused(first)
        assert second.locked == []
        slot.activate()
        await slot.release_and_wait()
        assert store.locks == {}
        slot.release()
        other = await second.acquire(*ANN, BUSY)
        await refused(first)
        other.release()
        await wait_all_tasks_blocked()
        assert store.locks == {}
        assert not first.locked
        assert not second.locked


async def test_a_slot_that_was_not_used_unlocks_in_the_background(
    autojump_clock: MockClock,
) -> None:
    async with two_nodes() as (store, first, second):
        slot = await first.acquire(*ANN, BUSY)
        slot.release_unused()
        await refused(first)  # until the store has unlocked it
        await wait_all_tasks_blocked()
        assert store.locks == {}
        await second.acquire(*ANN, BUSY)


async def test_a_turn_waits_for_the_other_node(autojump_clock: MockClock) -> None:
    async with two_nodes(60.0) as (_, first, second), trio.open_nursery() as nursery:
        slot = await first.acquire(*ANN, BUSY)
        acquired = trio.Event()

        async def acquire() -> None:
            await second.acquire(*ANN, BUSY)
            acquired.set()

        nursery.start_soon(acquire)
        await trio.sleep(30)
        assert not acquired.is_set()
        await slot.release_and_wait()
        with trio.fail_after(2 * session_locks.POLL_SECONDS):
            await acquired.wait()
        await refused(first)
        assert trio.current_time() >= 30 + 60 - 1


async def test_local_turns_take_turns(autojump_clock: MockClock) -> None:
    """The next one in the same process gets the session when the store has it free."""
    async with two_nodes(60.0) as (store, first, _), trio.open_nursery() as nursery:
        order: list[int] = []

        async def take_turn(number: int) -> None:
            slot = await first.acquire(*ANN, BUSY)
            order.append(number)
            assert store.locks == {ANN: "a"}
            await slot.release_and_wait()

        for number in range(5):
            nursery.start_soon(take_turn, number)
            await trio.sleep(0.001)
    assert sorted(order) == list(range(5))
    assert not first.locked


async def test_a_store_that_fails(autojump_clock: MockClock) -> None:
    async with two_nodes() as (store, first, second):
        store.broken.add("lock_session")
        with pytest.raises(StoreError):
            await first.acquire(*ANN, BUSY)
        store.broken.clear()
        await wait_all_tasks_blocked()
        slot = await first.acquire(*ANN, BUSY)
        store.broken.add("unlock_session")
        await slot.release_and_wait()
        slot.release()
        await trio.sleep(10)
        store.broken.clear()
        await refused(second)
        await trio.sleep(session_locks.RETRY_SECONDS + 0.1)
        await second.acquire(*ANN, BUSY)
        assert not first.locked


async def test_a_client_that_leaves_while_the_session_is_being_locked(
    autojump_clock: MockClock,
) -> None:
    async with two_nodes() as (store, first, second):
        with trio.CancelScope() as scope:
            scope.cancel()
            await first.acquire(*ANN, BUSY)
        assert scope.cancelled_caught
        await wait_all_tasks_blocked()
        assert store.locks == {}
        assert not first.locked
        await second.acquire(*ANN, BUSY)


async def test_the_lock_of_a_dead_node_counts_for_nothing(autojump_clock: MockClock) -> None:
    async with two_nodes() as (store, first, second):
        await first.acquire(*ANN, BUSY)
        store.dead.add("a")
        await second.acquire(*ANN, BUSY)
        assert store.locks == {ANN: "b"}
