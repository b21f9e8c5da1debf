"""The runs that are live now: to count them, to stop them, to wait until they are gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import trio

from hermes_trio.core.outcome import Reason


class Stoppable(Protocol):
    """What the registry needs to know of a run."""

    def stop(self, reason: Reason) -> None:
        """End the run; it saves what there is and says so to whoever listens."""
        ...


class Registry:
    """Live runs by id."""

    def __init__(self) -> None:
        self._live: dict[str, Stoppable] = {}
        self._empty = trio.Event()
        self._empty.set()

    def __len__(self) -> int:
        """How many runs are live."""
        return len(self._live)

    @contextmanager
    def listed(self, run_id: str, run: Stoppable) -> Iterator[None]:
        """The run is live for as long as the block lasts."""
        if not self._live:
            self._empty = trio.Event()
        self._live[run_id] = run
        try:
            yield
        finally:
            del self._live[run_id]
            if not self._live:
                self._empty.set()

    def stop_all(self, reason: Reason) -> None:
        """End every live run."""
        for run in tuple(self._live.values()):
            run.stop(reason)

    async def wait_empty(self) -> None:
        """Return when no run is live."""
        while self._live:
            await self._empty.wait()
        await trio.lowlevel.checkpoint()
