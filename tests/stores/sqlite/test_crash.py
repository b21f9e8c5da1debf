"""A process killed under load: everything acknowledged is durable."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import trio

from hermes_trio.core.records import EndedRun, NoRun
from hermes_trio.stores.base import Store
from hermes_trio.stores.sqlite import open_sqlite
from tests.stores.helpers import completed_runs
from tests.stores.samples import history_texts, logged_numbers, taken_headers, texts_of

ROUNDS = 4
ROOT = Path(__file__).parents[3]


async def printed_until_killed(path: Path, label: str, enough: int) -> list[str]:
    """Run the child, kill it after some acknowledgements, and return its output."""
    command = [sys.executable, "-m", "tests.stores.sqlite.crash_child", str(path), label]
    child = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None
    printed = b""
    async with child.stdout:
        async for some in child.stdout:
            printed += some
            if printed.count(b"\n") >= enough:
                child.kill()  # SIGKILL; what is still in the pipe is read on
    await child.wait()
    return printed.decode().rpartition("\n")[0].split("\n")  # a last line may be cut short


async def check_kept(store: Store, run_id: str, step: str) -> None:
    """Check that acknowledged steps of a run are durable, and others are complete or absent."""
    found = await store.find_run("ann", run_id)
    log = await logged_numbers(store, run_id)
    assert not isinstance(found, NoRun)
    assert log in ([], [0, 1], [0, 1, 2, 3, 4])
    assert len(log) >= {"begun": 0, "logged": 2, "ended": 5}[step]
    assert isinstance(found, EndedRun) == (len(log) == 5)
    assert isinstance(found, EndedRun) or step != "ended"
    assert (
        await history_texts(store, run_id)
        == texts_of(run_id)[: 2 if isinstance(found, EndedRun) else 1]
    )


async def check_sessions(store: Store, last_steps: dict[str, str]) -> None:
    """Check that each session has its runs in order, once each, without a gap."""
    acknowledged: defaultdict[str, list[str]] = defaultdict(list)
    for run_id, step in last_steps.items():
        acknowledged[run_id.partition("-")[0]] += [run_id] if step == "ended" else []
    for session, runs in acknowledged.items():
        there = await completed_runs(store, session)
        assert there[: len(runs)] == runs
        assert len(there) - len(runs) <= 1


@pytest.mark.slow
async def test_a_killed_process_loses_nothing_it_acknowledged(path: Path) -> None:
    cut: set[str] = set()
    for number in range(ROUNDS):
        with trio.fail_after(20):
            acknowledged = await printed_until_killed(path, str(number), 100 + 150 * number)
        last_steps = {run_id: step for step, run_id in map(str.split, acknowledged)}
        async with open_sqlite(path) as store:
            for run_id, step in last_steps.items():
                await check_kept(store, run_id, step)
            await check_sessions(store, last_steps)
            cut |= {found.run_id for found in await taken_headers(store, "parent")}
            await store.check()
    assert cut  # the callers go in step, so one kill may find that all have just ended
