"""Real clients that leave a real server at random: nothing is left behind, and every record is whole.

The seed is printed; ``ROBUSTNESS_SEED`` repeats it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.e2e.server import Plan, Server, serving
from tests.robustness.real_footprint import at_rest, faults_at_rest, faults_of_all, memory
from tests.robustness.real_launch import command
from tests.robustness.real_lines import Target
from tests.robustness.real_visits import AT_ONCE, Notes, crowd
from tests.robustness.report import Tally

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("robustness-disconnects"), pytest.mark.timeout(1500)]

BATCH = 1_000
FULL = 11_000  # some of them stay to the end
SHORT = 80
MOST_MEGABYTES = 50


def some_seed() -> str:
    return os.environ.get("ROBUSTNESS_SEED", "") or str(random.SystemRandom().randrange(10**6))


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Server]:
    settings = {"drain_seconds": 1, "max_runs": 1000, "stall_seconds": 4, "write_seconds": 4}
    plan = Plan(tmp_path, ("--agent", "synthetic"), settings, command(sockets="quick"))
    with serving(plan, expected="gave up a reader") as running:
        yield running


async def test_clients_that_leave_at_random(target: Server, full: bool, tally: Tally) -> None:
    seed = some_seed()
    print(f"seed {seed}")  # noqa: T201 - for whoever has to repeat it
    await crowd(Target.of(target), f"{seed}-warm", range(AT_ONCE), warm := Notes())
    await _until_quiet(target, warm, full)
    before = await trio.to_thread.run_sync(at_rest, target)
    kilobytes = 0
    for first in range(0, FULL if full else SHORT, BATCH):
        notes = Notes()
        numbers = range(first, first + (BATCH if full else SHORT))
        await crowd(Target.of(target), seed, numbers, notes)
        # While the vanished are still there: the server must find out about them by itself.
        idle_threads = 0 if full else 2 * AT_ONCE
        left = await trio.to_thread.run_sync(faults_at_rest, target, before, idle_threads)
        await notes.forget_the_vanished()
        faults = await trio.to_thread.run_sync(faults_of_all, target, notes.heard)
        assert [*notes.faults, *left, *faults] == [], f"seed {seed}, visits {numbers}"
        assert {status for status in notes.statuses if status not in {0, 200}} == set(), notes.statuses
        assert any(heard.ends for heard in notes.heard)
        assert any(heard.text and not heard.ends for heard in notes.heard)
        tally.add("real disconnects", notes.ways)
        kilobytes = kilobytes or memory(target)
    assert memory(target) - kilobytes < MOST_MEGABYTES * 1024


async def _until_quiet(target: Server, notes: Notes, full: bool) -> None:
    """Let go of what the warm-up took."""
    await notes.forget_the_vanished()
    with trio.fail_after(30):
        while not await trio.to_thread.run_sync(lambda: target.is_idle):  # noqa: ASYNC110 - another process
            await trio.sleep(0.05)
        if full:
            await trio.sleep(11)  # Trio's idle threads go after 10 s; the count of them begins low
