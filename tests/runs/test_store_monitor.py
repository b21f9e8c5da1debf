"""The heartbeat of the store."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from hermes_trio.runs.persistence import HEARTBEAT_SECONDS, HEARTBEAT_TIMEOUT, StoreMonitor
from hermes_trio.stores.base import StoreError


class StoreWithHeartbeat:
    """A store that works, fails or hangs."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.hangs = False

    async def heartbeat(self) -> None:
        """Do what was asked for."""
        if self.hangs:
            await trio.sleep_forever()
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    ("error", "problem"), [(StoreError("gone"), "gone"), (KeyError("bug"), "KeyError('bug')")]
)
async def test_a_failure_is_noticed_within_a_second_and_passes(
    autojump_clock: MockClock, error: Exception, problem: str
) -> None:
    store: Any = StoreWithHeartbeat()
    monitor = StoreMonitor(store)
    with capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(monitor.run)
            await trio.sleep(0.5)
            assert monitor.problem == ""
            store.error = error
            await trio.sleep(HEARTBEAT_SECONDS)
            assert monitor.problem == problem
            await trio.sleep(90)
            store.error = None
            await trio.sleep(HEARTBEAT_SECONDS)
            assert monitor.problem == ""
            nursery.cancel_scope.cancel()
    levels = [line["log_level"] for line in lines if "heartbeat" not in line["event"]]
    assert levels == ["critical", "critical", "warning"]  # once a minute, and when it is over


async def test_a_store_that_hangs(autojump_clock: MockClock) -> None:
    store: Any = StoreWithHeartbeat()
    store.hangs = True
    monitor = StoreMonitor(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(monitor.run)
        await trio.sleep(HEARTBEAT_TIMEOUT + 0.5)
        assert "no answer" in monitor.problem
        nursery.cancel_scope.cancel()


async def test_a_store_without_a_heartbeat() -> None:
    store: Any = object()
    await StoreMonitor(store).run()


async def test_how_long_the_store_takes_is_reported(autojump_clock: MockClock) -> None:
    store: Any = StoreWithHeartbeat()
    taken: list[float] = []
    monitor = StoreMonitor(store, taken.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(monitor.run)
        await trio.sleep(0.5)
        store.error = StoreError("gone")
        await trio.sleep(HEARTBEAT_SECONDS)
        assert taken == [0.0]  # only of heartbeats that succeed
        store.error = None
        await trio.sleep(HEARTBEAT_SECONDS)
        assert len(taken) == 2
        nursery.cancel_scope.cancel()
