"""``python -m benchmarks.servers.records PORT FOLDER``: the limit of a server that keeps records.

The bare Trio socket server with one addition: it saves the record of a turn, in the store that
hermes_trio uses, before it tells the client of the end. It has no keys, sessions or run registry.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import trio

from benchmarks.servers import limit
from hermes_trio.core.messages import Message, MessageItem, Usage
from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.core.records import EndedRun, RunHeader, Stamp
from hermes_trio.stores.base import Store
from hermes_trio.stores.sqlite import open_sqlite

SPOKEN = "1234567890123 t000001 "
DONE = Outcome(Status.COMPLETED, usage=Usage(5, 1))


class Server(limit.Server):
    """Keeps a record of every turn."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._numbers = count()

    async def ended(self, asked: Any) -> None:
        """Save the turn, with a token as its answer."""
        await self._store.end_run(EndedRun(self._header(asked), (MessageItem(SPOKEN),), DONE, 0.01))

    def _header(self, asked: Any) -> RunHeader:
        number = (
            hash(next(self._numbers)) * 0x9E3779B97F4A7C15 % 2**64
        )  # the ids of hermes_trio are in no order either
        messages = tuple(Message(said["role"], said["content"]) for said in asked["messages"])
        stamp = Stamp(f"chatcmpl-{number:029x}", time.time(), asked["model"])
        return RunHeader("bench", stamp, "chat", f"api-{number:016x}", messages)


async def serve(port: int, folder: Path) -> None:
    """Listen on a port of this machine."""
    async with open_sqlite(folder / "records.db") as store:
        limit.tune()
        await limit.serve(port, Server(store))


if __name__ == "__main__":
    trio.run(partial(serve, int(sys.argv[1]), Path(sys.argv[2])))
