"""Forgetting, once a minute."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from hermes_trio.core.records import PurgeResult, Retention
from hermes_trio.runs.persistence import RETENTION_SECONDS, enforce_retention
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.sqlite import MemoryStore

RETENTION = Retention(log_seconds=5.0)


class Full(MemoryStore):
    """A store that has so much to forget, and fails when told to."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left, self.fails = left, False
        self.calls: list[tuple[float, Retention, float]] = []

    async def purge(self, retention: Retention, now: float) -> PurgeResult:
        """Forget a little."""
        await trio.lowlevel.checkpoint()
        self.calls.append((trio.current_time(), retention, now))
        if self.fails:
            raise StoreError("the disk is full")
        self.left, before = max(0, self.left - 10), self.left
        return PurgeResult(runs=before - self.left)


@pytest.fixture
async def store(nursery: trio.Nursery) -> Full:
    full = Full(35)
    nursery.start_soon(enforce_retention, full, RETENTION, lambda: 1234.0)
    return full


async def test_all_that_can_be_forgotten_is_forgotten_at_once(
    autojump_clock: MockClock, store: Full
) -> None:
    begun = trio.current_time()
    await trio.sleep(RETENTION_SECONDS + 1)
    assert store.left == 0
    assert store.calls == [(begun + RETENTION_SECONDS, RETENTION, 1234.0)] * 5
    await trio.sleep(RETENTION_SECONDS)
    assert len(store.calls) == 6


async def test_a_store_that_fails_is_asked_again_a_minute_later(
    autojump_clock: MockClock, store: Full
) -> None:
    store.fails = True
    await trio.sleep(RETENTION_SECONDS + 1)
    assert len(store.calls) == 1
    store.fails = False
    await trio.sleep(RETENTION_SECONDS)
    assert store.left == 0
