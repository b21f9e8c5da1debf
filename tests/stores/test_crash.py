"""Killed without warning under load: what was acknowledged is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from hermes_trio.stores.contract import Store
from hermes_trio.stores.sqlite import open_sqlite
from tests.stores.helpers import runs_of

ROUNDS = 5
ROOT = Path(__file__).parents[2]


async def saved_until_killed(path: Path, label: str, enough: int) -> list[str]:
    """Run the child, kill it after some acknowledgements, return all that it managed to print."""
    command = [sys.executable, "-m", "tests.stores.crash_child", f"sqlite://{path}", label]
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


async def lost(store: Store, acknowledged: list[str]) -> set[str]:
    """The runs that were promised and are not there."""
    sessions = {run_id.partition("-")[0] for run_id in acknowledged}
    there = [run_id for session in sessions for run_id in await runs_of(store, session)]
    assert len(there) == len(set(there))
    return set(acknowledged) - set(there)


@pytest.mark.slow
async def test_a_killed_process_loses_nothing_it_acknowledged(path: Path) -> None:
    acknowledged: list[str] = []
    for number in range(ROUNDS):
        with trio.fail_after(20):
            acknowledged += await saved_until_killed(path, str(number), 100 + 150 * number)
        async with open_sqlite(path) as store:
            assert not await lost(store, acknowledged)
            await store.check()
