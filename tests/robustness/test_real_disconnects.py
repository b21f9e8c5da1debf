"""Real clients that leave a real server at random.

Nothing is left behind, and every record is whole.

The seed is printed; ``ROBUSTNESS_SEED`` repeats it.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.robustness.real_clients import AT_ONCE, ClientResults, run_clients
from tests.robustness.real_connections import Target
from tests.robustness.real_footprint import (
    Footprint,
    at_rest,
    faults_at_rest,
    faults_of_all,
    memory,
)
from tests.robustness.real_launch import command
from tests.robustness.report import CaseCounter
from tests.support.server_process import LaunchOptions, ServerProcess, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("robustness-disconnects"),
    pytest.mark.timeout(1500),
]

BATCH = 500
FULL = 11_000  # some of them stay to the end
SHORT = 80
SOAK_SECONDS = 600.0
FEW_AT_ONCE = 10  # every second batch
MOST_MEGABYTES = 50  # that all of it may take
GROWTH_MEGABYTES = 8  # from the second third of the soak to the last


def some_seed() -> str:
    return os.environ.get("ROBUSTNESS_SEED", "") or str(random.SystemRandom().randrange(10**6))


@pytest.fixture
def target(tmp_path: Path) -> Iterator[ServerProcess]:
    settings = {"drain_seconds": 1, "max_runs": 1000, "stall_seconds": 4, "write_seconds": 4}
    plan = LaunchOptions(tmp_path, ("--agent", "synthetic"), settings, command(sockets="quick"))
    with serving(plan, expected="a stream was cut off") as running:
        yield running


async def test_clients_that_leave_at_random(
    target: ServerProcess, full: bool, cases: CaseCounter
) -> None:
    """In the session for ten minutes, which are the soak.

    Nothing is left after any batch, and memory does not grow.
    """
    seed = some_seed()
    print(f"seed {seed}")  # noqa: T201 - for whoever has to repeat it
    await run_clients(Target.of(target), f"{seed}-warm", range(AT_ONCE), warm := ClientResults())
    await _until_quiet(target, warm)
    before = await trio.to_thread.run_sync(at_rest, target)
    begun, first, kilobytes = time.monotonic(), 0, list[int]()
    size, seconds, visits = (BATCH, SOAK_SECONDS, FULL) if full else (SHORT, 0.0, SHORT)
    while first < visits or time.monotonic() - begun < seconds:
        numbers = range(first, first + size)
        at_once = FEW_AT_ONCE if len(kilobytes) % 2 else AT_ONCE
        cases.add(
            "real disconnects", (await _batch(target, before, f"{seed}", numbers, at_once)).ways
        )
        kilobytes.append(memory(target))
        first += size
    assert kilobytes[-1] - kilobytes[0] < MOST_MEGABYTES * 1024, kilobytes
    third = len(kilobytes) // 3  # the first one fills caches, which are bounded
    growth = min(kilobytes[2 * third :]) - min(kilobytes[third : 2 * third] or kilobytes)
    assert growth < GROWTH_MEGABYTES * 1024, kilobytes
    if full:
        cases.add(
            "soak",
            {"seconds": int(time.monotonic() - begun), "kilobytes of growth": max(0, growth)},
        )


async def _batch(
    target: ServerProcess, before: Footprint, seed: str, numbers: range, at_once: int
) -> ClientResults:
    notes = ClientResults()
    await run_clients(Target.of(target), seed, numbers, notes, at_once)
    # While the vanished are still there: the server must find out about them by itself.
    left = await trio.to_thread.run_sync(faults_at_rest, target, before)
    await notes.forget_the_vanished()
    faults = await trio.to_thread.run_sync(faults_of_all, target, notes.received)
    assert [*notes.faults, *left, *faults] == [], f"seed {seed}, visits {numbers}"
    assert {status for status in notes.statuses if status not in {0, 200}} == set(), notes.statuses
    assert any(received.ends for received in notes.received)
    assert any(received.text and not received.ends for received in notes.received)
    return notes


async def _until_quiet(target: ServerProcess, notes: ClientResults) -> None:
    """Let go of what the warm-up took."""
    await notes.forget_the_vanished()
    with trio.fail_after(30):
        while not await trio.to_thread.run_sync(lambda: target.is_idle):  # noqa: ASYNC110 - another process
            await trio.sleep(0.05)
