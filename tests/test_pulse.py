"""One timer for many streams: each is told when it has been silent, to the moment."""

from __future__ import annotations

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.pulse import Pulse


class Listener:
    """Notes when it was told."""

    def __init__(self) -> None:
        self.told: list[float] = []

    def silent(self) -> None:
        """It is time to say something."""
        self.told.append(trio.current_time())


async def test_each_is_told_when_it_has_been_silent(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    pulse, early, late, busy = Pulse(10), Listener(), Listener(), Listener()
    begin = trio.current_time()
    nursery.start_soon(pulse.run)
    await wait_all_tasks_blocked()
    pulse.add(early)
    pulse.add(busy)
    await trio.sleep(4)
    pulse.add(late)
    for _ in range(4):
        await trio.sleep(5.2)
        pulse.beat(busy)
    assert [told - begin for told in early.told] == [10, 20]
    assert [told - begin for told in late.told] == [14, 24]
    assert busy.told == []


async def test_who_has_left_is_not_told(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    pulse, first, second = Pulse(10), Listener(), Listener()
    nursery.start_soon(pulse.run)
    pulse.add(first)
    pulse.add(second)
    await trio.sleep(5)
    pulse.remove(first)
    await trio.sleep(10)
    pulse.remove(second)
    await trio.sleep(100)
    assert (len(first.told), len(second.told)) == (0, 1)
    pulse.add(first)
    await trio.sleep(10.5)
    assert len(first.told) == 1
