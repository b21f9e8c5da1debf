"""The registry of live runs: find them, stop them, wait until none is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

import trio

from hermes_trio.core.outcome import Reason
from hermes_trio.core.records import RunHeader


class Stoppable(Protocol):
    """What the registry requires of a run."""

    def stop(self, reason: Reason) -> None:
        """End the run. It saves what there is and announces its end."""
        ...


R = TypeVar("R", bound=Stoppable)


class RunRegistry(Generic[R]):
    """Live runs by principal and run id. Create it in a Trio task."""

    def __init__(self) -> None:
        self._live: dict[tuple[str, str], R] = {}
        self._sessions: dict[tuple[str, str], str] = {}  # of the live runs
        self._appeared = trio.Event()
        self._empty = trio.Event()

    def __len__(self) -> int:
        """Return the number of live runs."""
        return len(self._live)

    def add(self, header: RunHeader, run: R) -> None:
        """Register a run."""
        key = (header.principal, header.stamp.run_id)
        self._live[key] = run
        self._sessions[key] = header.session_id
        self._appeared.set()
        self._appeared = trio.Event()

    def remove(self, header: RunHeader) -> None:
        """Remove a run that has ended."""
        key = (header.principal, header.stamp.run_id)
        del self._live[key], self._sessions[key]
        if not self._live:
            self._empty.set()
            self._empty = trio.Event()

    def __iter__(self) -> Iterator[R]:
        """Iterate over the runs that are live now; runs may come and go meanwhile."""
        return iter(list(self._live.values()))

    def find(self, principal: str, run_id: str) -> R | None:
        """Return a live run of the principal, None if there is no such run."""
        return self._live.get((principal, run_id))

    def list_for(self, principal: str) -> tuple[R, ...]:
        """Return the live runs of a principal."""
        return tuple(run for (owner, _), run in self._live.items() if owner == principal)

    def in_session(self, principal: str, session_id: str) -> tuple[R, ...]:
        """Return the live runs that began in a session of the principal."""
        found = [
            key for key, name in self._sessions.items() if (key[0], name) == (principal, session_id)
        ]
        return tuple(self._live[key] for key in found)

    async def wait_listed(self, principal: str, run_id: str) -> R:
        """Wait for a run that is about to be registered."""
        while (run := self.find(principal, run_id)) is None:
            await self._appeared.wait()
        return run

    def stop_all(self, reason: Reason) -> None:
        """End every live run."""
        for run in tuple(self._live.values()):
            run.stop(reason)

    async def wait_empty(self) -> None:
        """Wait until no run is live."""
        while self._live:
            await self._empty.wait()
        await trio.lowlevel.checkpoint()
