"""A process to be killed: saves turns from many tasks and prints each run once it is acknowledged."""

from __future__ import annotations

import sys

import trio

from hermes_trio.stores.contract import Store
from hermes_trio.stores.opening import open_store
from tests.stores.helpers import turn


async def save_for_ever(store: Store, prefix: str) -> None:
    """One caller among many, with a session of its own."""
    number = 0
    while True:
        run_id = f"{prefix}-{number}"
        await store.save_turn(turn(run_id, session_id=prefix))
        sys.stdout.write(f"{run_id}\n")
        sys.stdout.flush()
        number += 1


async def main(address: str, label: str) -> None:
    """Never returns."""
    async with open_store(address) as store, trio.open_nursery() as nursery:
        for caller in range(16):
            nursery.start_soon(save_for_ever, store, f"{label}.{caller}")


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2])
