"""One bell for all."""

from __future__ import annotations

import threading

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.agent.bell import Bell, current_bell


class CountingToken:
    """Counts how often Trio is woken."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self.wakes = 0

    def run_sync_soon(self, function: object) -> None:
        self.wakes += 1
        self._token.run_sync_soon(function)  # type: ignore[arg-type]  # whatever it is


async def test_all_who_ring_are_heard_and_trio_is_woken_once() -> None:
    bell, heard = Bell(), list[int]()
    bell._token = token = CountingToken()  # type: ignore[assignment]  # as far as a bell needs it
    threads = [threading.Thread(target=bell.ring, args=(lambda n=n: heard.append(n),)) for n in range(8)]
    for thread in threads:
        thread.start()
        thread.join()
    assert heard == []
    await wait_all_tasks_blocked()
    assert heard == list(range(8))
    assert token.wakes == 1
    bell.ring(lambda: heard.append(8))
    await wait_all_tasks_blocked()
    assert heard[-1] == 8
    assert token.wakes == 2


async def test_who_rings_while_it_is_answered_is_heard_later() -> None:
    bell, heard = Bell(), list[str]()
    bell.ring(lambda: bell.ring(lambda: heard.append("again")))
    await wait_all_tasks_blocked()
    assert heard == ["again"]


async def test_there_is_one_for_each_run() -> None:
    assert current_bell() is current_bell()
    other = await trio.to_thread.run_sync(trio.run, _bell)
    assert other is not current_bell()


async def _bell() -> Bell:
    return current_bell()


def test_everybody_hears_that_there_is_no_trio_any_more() -> None:
    bell = trio.run(_bell)
    for _ in range(3):
        with pytest.raises(trio.RunFinishedError):
            bell.ring(lambda: None)
