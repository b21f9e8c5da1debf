"""Copies of the logs of other nodes' runs: complete, in order, shared by readers, without a notice, too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.changes import Change, Ended, TextAdded
from hermes_trio.core.log_codec import encode_changes
from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.core.records import EndedRun, LogBatch, Ownership, RunHeader
from hermes_trio.runs import following
from hermes_trio.runs.following import LogFollower
from hermes_trio.runs.log import LogTruncated
from tests.runs.supervisor_harness import header_of, read_all
from tests.support.shared_store import SharedMemoryStore

HEADER = header_of("run-1")
END = Ended(Outcome(Status.COMPLETED))


def texts(first: int, count: int) -> tuple[Change, ...]:
    return tuple(TextAdded(0, f"{number} ") for number in range(first, first + count))


class Announcements:
    """What a follower tells the owner of a run."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def follow(self, header: RunHeader) -> None:
        self.told.append(f"follow {header.run_id}")

    def leave(self, header: RunHeader) -> None:
        self.told.append(f"leave {header.run_id}")


class Owner:
    """The node that executes the run."""

    def __init__(self, store: SharedMemoryStore) -> None:
        self.store, self.saved = store, 0

    async def append(self, count: int) -> None:
        await self.store.append_log([self._batch(texts(self.saved, count))])
        self.saved += count

    async def end(self) -> None:
        ended = EndedRun(HEADER, (), END.outcome, 1.0)
        await self.store.end_run(ended, [self._batch((END,))])

    def _batch(self, changes: tuple[Change, ...]) -> LogBatch:
        return LogBatch("ann", "run-1", self.saved, encode_changes(changes), len(changes))


@asynccontextmanager
async def following_run(
    can_listen: bool = True,
) -> AsyncIterator[tuple[Owner, LogFollower, Announcements]]:
    store, announcements = SharedMemoryStore(can_listen), Announcements()
    await store.begin_run(HEADER, Ownership("elsewhere"))
    follower = LogFollower(store, store, announcements.follow, announcements.leave)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follower.run)
        yield Owner(store), follower, announcements
        nursery.cancel_scope.cancel()


async def test_readers_get_everything_and_share_one_copy(autojump_clock: MockClock) -> None:
    async with following_run() as (owner, follower, announcements):
        await owner.append(2)
        read: list[list[Change]] = []

        async def follow() -> None:
            async with follower.follow(HEADER) as reader:
                read.append(await read_all(reader))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            nursery.start_soon(follow)
            await wait_all_tasks_blocked()
            await owner.append(3)
            follower.wake(["run-1", "another"])
            await wait_all_tasks_blocked()
            nursery.start_soon(follow)
            await owner.end()
            follower.wake(["run-1"])
        assert read == [[*texts(0, 5), END]] * 3
        assert announcements.told == ["follow run-1", "leave run-1"]
        assert follower.headers == ()


async def test_a_notice_is_followed_at_once(mock_clock: MockClock) -> None:
    mock_clock.rate = 0.0
    async with following_run() as (owner, follower, _), follower.follow(HEADER) as reader:
        await wait_all_tasks_blocked()
        mock_clock.jump(following.LOOK_SECONDS / 4)
        await owner.append(1)
        follower.wake(["run-1"])
        await wait_all_tasks_blocked()
        mock_clock.jump(following.COALESCE_SECONDS)
        assert await reader.receive() == texts(0, 1)


@pytest.mark.parametrize("can_listen", [False, True])
async def test_a_lost_notice_costs_time_only(can_listen: bool, autojump_clock: MockClock) -> None:
    seconds = following.LOOK_SECONDS if can_listen else following.BLIND_LOOK_SECONDS
    async with following_run(can_listen) as (owner, follower, _), follower.follow(HEADER) as reader:
        for number in range(10):
            await owner.append(1)
            with trio.fail_after(seconds + following.COALESCE_SECONDS):
                assert await reader.receive() == texts(number, 1)


async def test_notices_of_one_run_do_not_keep_others_from_being_looked_at(
    autojump_clock: MockClock,
) -> None:
    other = header_of("run-2")
    async with following_run() as (owner, follower, _), trio.open_nursery() as nursery:
        await owner.store.begin_run(other, Ownership("elsewhere"))

        async def ring() -> None:
            while True:
                follower.wake(["run-2"])
                await trio.sleep(following.LOOK_SECONDS / 10)

        nursery.start_soon(ring)
        async with follower.follow(other), follower.follow(HEADER) as reader:
            await owner.append(1)
            with trio.fail_after(2 * following.LOOK_SECONDS):
                assert await reader.receive() == texts(0, 1)
        nursery.cancel_scope.cancel()


async def test_nothing_is_asked_while_nothing_is_followed(autojump_clock: MockClock) -> None:
    async with following_run() as (owner, follower, announcements):
        async with follower.follow(HEADER):
            await trio.sleep(2.5 * following.LOOK_SECONDS)
        asked = owner.store.queries
        follower.wake()
        await trio.sleep(100 * following.LOOK_SECONDS)
        assert 0 < asked == owner.store.queries
        assert announcements.told == ["follow run-1", "leave run-1"]


async def test_a_store_that_fails_is_asked_again(autojump_clock: MockClock) -> None:
    async with following_run() as (owner, follower, _), follower.follow(HEADER) as reader:
        owner.store.broken.add("follow_logs")
        await owner.append(1)
        await trio.sleep(5 * following.RETRY_SECONDS)
        owner.store.broken.clear()
        with trio.fail_after(following.RETRY_SECONDS + 1):
            assert await reader.receive() == texts(0, 1)


async def test_a_long_log_is_read_to_its_end(autojump_clock: MockClock) -> None:
    """Though a read returns only a part, and no notice follows."""
    async with following_run() as (owner, follower, _):
        for _ in range(200):
            await owner.append(1)
        await owner.end()
        async with follower.follow(HEADER) as reader:
            with trio.fail_after(following.LOOK_SECONDS):
                assert await read_all(reader) == [*texts(0, 200), END]


async def test_a_run_that_is_deleted_is_over(autojump_clock: MockClock) -> None:
    async with following_run() as (owner, follower, _), follower.follow(HEADER) as reader:
        await owner.append(1)
        assert await reader.receive() == texts(0, 1)
        await owner.store.end_run(EndedRun(HEADER, (), END.outcome, 1.0))
        assert await owner.store.delete_run("ann", "run-1")
        with pytest.raises((trio.EndOfChannel, LogTruncated)):
            await reader.receive()
