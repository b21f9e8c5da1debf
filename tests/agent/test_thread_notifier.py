"""One wake-up of Trio for many callbacks."""

from __future__ import annotations

import threading

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.agent.event_queue import ThreadNotifier, current_notifier


class CountingToken:
    """Counts how often Trio is woken."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self.wakes = 0

    def run_sync_soon(self, function: object) -> None:
        self.wakes += 1
        self._token.run_sync_soon(function)  # type: ignore[arg-type]  # whatever it is


async def test_all_callbacks_are_called_and_trio_is_woken_once() -> None:
    notifier, called = ThreadNotifier(), list[int]()
    notifier._token = token = CountingToken()  # type: ignore[assignment]  # as much of it as is needed
    threads = [
        threading.Thread(target=notifier.notify, args=(lambda n=n: called.append(n),))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
        thread.join()
    assert called == []
    await wait_all_tasks_blocked()
    assert called == list(range(8))
    assert token.wakes == 1
    notifier.notify(lambda: called.append(8))
    await wait_all_tasks_blocked()
    assert called[-1] == 8
    assert token.wakes == 2


async def test_a_callback_may_schedule_another() -> None:
    notifier, called = ThreadNotifier(), list[str]()
    notifier.notify(lambda: notifier.notify(lambda: called.append("again")))
    await wait_all_tasks_blocked()
    assert called == ["again"]


async def test_each_trio_run_has_its_own() -> None:
    assert current_notifier() is current_notifier()
    other = await trio.to_thread.run_sync(trio.run, _current)
    assert other is not current_notifier()


async def _current() -> ThreadNotifier:
    return current_notifier()


def test_every_caller_gets_an_error_after_trio_has_ended() -> None:
    notifier = trio.run(_current)
    for _ in range(3):
        with pytest.raises(trio.RunFinishedError):
            notifier.notify(lambda: None)
