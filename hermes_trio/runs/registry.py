"""The runs that are live now: to count them, to stop them, to wait until they are gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

import trio

from hermes_trio.core.outcome import Reason
from hermes_trio.core.records import RunHeader


class Live(Protocol):
    """What the registry needs to know of a run."""

    def stop(self, reason: Reason) -> None:
        """End the run; it saves what there is and says so to whoever listens."""
        ...


R = TypeVar("R", bound=Live)


class Registry(Generic[R]):
    """Live runs by principal and id."""

    def __init__(self) -> None:
        self._live: dict[tuple[str, str], R] = {}
        self._sessions: dict[tuple[str, str], str] = {}  # of the live runs
        self._appeared = trio.Event()
        self._empty = trio.Event()

    def __len__(self) -> int:
        """How many runs are live."""
        return len(self._live)

    def enter(self, header: RunHeader, run: R) -> None:
        """A run is live from now on."""
        key = (header.principal, header.run_id)
        self._live[key] = run
        self._sessions[key] = header.session_id
        self._appeared.set()
        self._appeared = trio.Event()

    def leave(self, header: RunHeader) -> None:
        """It is over."""
        key = (header.principal, header.run_id)
        del self._live[key], self._sessions[key]
        if not self._live:
            self._empty.set()
            self._empty = trio.Event()

    def __iter__(self) -> Iterator[R]:
        """All that are live now."""
        return iter(list(self._live.values()))

    def find(self, principal: str, run_id: str) -> R | None:
        """A live run, if there is one of that name and it is the principal's."""
        return self._live.get((principal, run_id))

    def of(self, principal: str) -> tuple[R, ...]:
        """The live runs of a principal."""
        return tuple(run for (owner, _), run in self._live.items() if owner == principal)

    def in_session(self, principal: str, session_id: str) -> tuple[R, ...]:
        """The live runs that began in a session of the principal."""
        found = [key for key, name in self._sessions.items() if (key[0], name) == (principal, session_id)]
        return tuple(self._live[key] for key in found)

    async def wait_listed(self, principal: str, run_id: str) -> R:
        """A run that is about to become live."""
        while (run := self.find(principal, run_id)) is None:
            await self._appeared.wait()
        return run

    def stop_all(self, reason: Reason) -> None:
        """End every live run."""
        for run in tuple(self._live.values()):
            run.stop(reason)

    async def wait_empty(self) -> None:
        """Return when no run is live."""
        while self._live:
            await self._empty.wait()
        await trio.lowlevel.checkpoint()
