"""The store for trials and tests: everything is gone when it closes, and it grows with all that is said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from hermes_trio.core.messages import Message
from hermes_trio.core.record import TurnRecord
from hermes_trio.stores.codec import bodies, decode, require_keys
from hermes_trio.stores.contract import StoreError
from hermes_trio.stores.faults import CLOSED


class MemoryStore:
    """A :class:`~hermes_trio.stores.contract.Store` in dictionaries. Made by :func:`open_memory`.

    It keeps the written form of messages, so that it accepts and returns just what the others do.
    """

    def __init__(self) -> None:
        self._bodies: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self._runs: set[tuple[str, str]] = set()
        self._is_closed = False

    async def messages(self, principal: str, session_id: str) -> tuple[Message, ...]:
        """The transcript of a session in the order it was said; empty for an unknown one."""
        require_keys(principal, session_id)
        await self._turn()
        found = self._bodies.get((principal, session_id), ())
        return tuple(decode(body, session_id, n) for n, body in enumerate(found))

    async def save_turn(self, record: TurnRecord) -> None:
        """Append a turn, unless this run is there already."""
        require_keys(record.principal, record.run_id, record.session_id)
        written = bodies(record)
        await self._turn()
        run = (record.principal, record.run_id)
        if run not in self._runs:
            self._runs.add(run)
            self._bodies[record.principal, record.session_id].extend(written)

    async def check(self) -> None:
        """Fails only when closed."""
        await self._turn()

    def close(self) -> None:
        """Forget everything."""
        self._is_closed = True
        self._bodies.clear()
        self._runs.clear()

    async def _turn(self) -> None:
        # Others run here, as they would while a real store waits; the change after it is done in one go.
        await trio.lowlevel.checkpoint()
        if self._is_closed:
            raise StoreError(CLOSED)


@asynccontextmanager
async def open_memory() -> AsyncIterator[MemoryStore]:
    """An empty store."""
    store = MemoryStore()
    try:
        yield store
    finally:
        store.close()
