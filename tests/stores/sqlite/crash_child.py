"""A process to be killed.

Runs begin, log and end in many tasks; each step is printed once it is acknowledged.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from hermes_trio.core.records import Ownership
from hermes_trio.stores.base import Store
from hermes_trio.stores.sqlite import open_sqlite
from tests.stores.samples import batch, ended, header


def acknowledge(step: str, run_id: str) -> None:
    """Report a step to the parent."""
    sys.stdout.write(f"{step} {run_id}\n")
    sys.stdout.flush()


async def live(store: Store, session: str, run_id: str) -> None:
    """Begin, log and end one run."""
    await store.begin_run(header(run_id, session_id=session), Ownership("child"))
    acknowledge("begun", run_id)
    await store.append_log([batch(run_id, 0, 2)])
    acknowledge("logged", run_id)
    await store.end_run(ended(run_id, session_id=session), [batch(run_id, 2, 3)])
    acknowledge("ended", run_id)


async def live_for_ever(store: Store, session: str) -> None:
    """Execute runs in a session of its own, one after the other."""
    number = 0
    while True:
        await live(store, session, f"{session}-{number}")
        number += 1


async def main(path: str, label: str) -> None:
    """Run until killed."""
    async with open_sqlite(Path(path)) as store, trio.open_nursery() as nursery:
        for caller in range(16):
            nursery.start_soon(live_for_ever, store, f"{label}.{caller}")


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2])
