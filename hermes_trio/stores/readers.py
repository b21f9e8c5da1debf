"""Reading: a few connections that cannot write, each used by one worker thread at a time."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

import trio

from hermes_trio.stores.base import StoreError
from hermes_trio.stores.faults import CLOSED, explained, has_no_thread

T = TypeVar("T")


class Readers:
    """A pool as large as its limiter: whoever has a token finds an idle connection."""

    def __init__(self, connections: Sequence[sqlite3.Connection]) -> None:
        self._idle = deque(connections)
        self._limiter = trio.CapacityLimiter(len(connections))
        self._is_closed = False

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do some reading in a thread. A cancelled caller goes at once; its thread ends by itself.

        Raises:
            StoreError: the database could not be read, or is closed.
        """
        if self._is_closed:
            raise StoreError(CLOSED)
        try:
            return await trio.to_thread.run_sync(
                self._borrow, work, abandon_on_cancel=True, limiter=self._limiter
            )
        except sqlite3.Error as error:
            raise explained(error) from error
        except RuntimeError as error:
            if has_no_thread(error):
                raise explained(error) from error
            raise

    def _borrow(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._idle.pop()
        try:
            return work(connection)
        finally:
            self._idle.append(connection)

    async def close(self) -> None:
        """Begin no more reads and wait for those under way, the abandoned too: a thread keeps its token to its end."""
        self._is_closed = True
        for _ in range(int(self._limiter.total_tokens)):
            await self._limiter.acquire_on_behalf_of(object())
