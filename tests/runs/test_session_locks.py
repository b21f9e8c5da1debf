"""One turn at a time for each session: a line that is fair, and that anybody may leave."""

from __future__ import annotations

import random

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.errors import ApiError
from hermes_trio.runs.admission import SessionLocks, Slot

BUSY = ApiError(409, "Another turn is under way.", code="session_busy")
ANN = ("ann", "s")


@define
class Line:
    """Those who wait for one place, and the order in which they got it."""

    session_locks: SessionLocks
    entered: list[int] = field(factory=list)
    places: list[Slot] = field(factory=list)

    async def join(self, number: int) -> None:
        self.places.append(await self.session_locks.acquire(*ANN, BUSY))
        self.entered.append(number)


async def test_without_patience_the_second_is_refused_at_once() -> None:
    locks = SessionLocks()
    place = await locks.acquire(*ANN, BUSY)
    with pytest.raises(ApiError) as caught:
        await locks.acquire(*ANN, BUSY)
    assert caught.value is BUSY
    place.release()
    await locks.acquire(*ANN, BUSY)


async def test_other_sessions_and_principals_are_free() -> None:
    locks = SessionLocks()
    places = [await locks.acquire(*key, BUSY) for key in (ANN, ("ann", "t"), ("bob", "s"))]
    for place in places:
        place.release()
    assert not locks.locked


async def test_first_come_first_served(autojump_clock: MockClock) -> None:
    line = Line(SessionLocks(60))
    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(line.join, number)
            await wait_all_tasks_blocked()
        for number in range(5):
            await wait_all_tasks_blocked()
            assert line.entered == list(range(number + 1))
            line.places[-1].release()
    assert not line.session_locks.locked


async def test_a_newcomer_does_not_slip_in() -> None:
    """Between the release and the moment when the next in line wakes, the place is not free."""
    line = Line(SessionLocks(60))
    async with trio.open_nursery() as nursery:
        await line.join(0)
        nursery.start_soon(line.join, 1)
        await wait_all_tasks_blocked()
        line.places[0].release()
        with pytest.raises(trio.WouldBlock):
            line.session_locks.acquire_nowait(*ANN)
        await wait_all_tasks_blocked()
        assert line.entered == [0, 1]


async def test_patience_has_an_end(autojump_clock: MockClock) -> None:
    locks = SessionLocks(60)
    place = await locks.acquire(*ANN, BUSY)
    with pytest.raises(ApiError) as caught:
        await locks.acquire(*ANN, BUSY)
    assert caught.value is BUSY
    assert trio.current_time() == 60
    place.release()
    assert not locks.locked


async def test_a_place_that_comes_at_the_last_moment_is_taken(autojump_clock: MockClock) -> None:
    """Given and timed out in one step: given counts, or the place would be lost for good."""
    line = Line(SessionLocks(60))
    await line.join(0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(line.join, 1)
        await wait_all_tasks_blocked()
        line.places[0].release()
        autojump_clock.jump(60)
    assert line.entered == [0, 1]


async def test_a_place_that_comes_to_one_who_leaves_is_passed_on() -> None:
    """The waiter has it although it is being cancelled; its request gives it back."""
    locks = SessionLocks(60)
    first = await locks.acquire(*ANN, BUSY)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_acquire_and_release, locks)
            await wait_all_tasks_blocked()
            first.release()
            scope.cancel()
    assert not locks.locked


async def _acquire_and_release(locks: SessionLocks) -> None:
    place = await locks.acquire(*ANN, BUSY)
    try:
        await trio.sleep_forever()
    finally:
        place.release_unused()


class Crowd:
    """Turns that come, wait, work and leave at random.

    Never two at once, and in order of arrival.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.session_locks = SessionLocks(8)
        self._inside = 0
        self._line: list[int] = []
        self.outcomes: list[str] = []

    async def turn(self, number: int) -> None:
        chance = random.Random(f"{self._seed}-{number}")
        with trio.move_on_after(chance.choice([5, 15, 500])) as scope:
            await trio.sleep(chance.uniform(0, 50))
            self._line.append(number)
            try:
                place = await self.session_locks.acquire(*ANN, BUSY)
            except ApiError:
                self._line.remove(number)
                self.outcomes.append("refused")
                return
            except trio.Cancelled:
                self._line.remove(number)
                raise
            await self._work(number, place, chance.uniform(0, 4))
        if scope.cancelled_caught:
            self.outcomes.append("left")

    async def _work(self, number: int, place: Slot, seconds: float) -> None:
        try:
            assert self._line[0] == number
            assert self._inside == 0
            self._inside += 1
            await trio.sleep(seconds)
        finally:
            self._inside -= 1
            self._line.remove(number)
            place.release()
        self.outcomes.append("done")


@pytest.mark.parametrize("seed", range(5))
async def test_a_crowd(seed: int, autojump_clock: MockClock) -> None:
    crowd = Crowd(seed)
    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(crowd.turn, number)
    assert set(crowd.outcomes) == {"done", "left", "refused"}
    assert len(crowd.outcomes) == 100
    assert not crowd.session_locks.locked
