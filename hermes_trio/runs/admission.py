"""How many runs at once: one limit for every route that runs an agent, and one turn at a time for each session.

A slot is reserved while a status can still be chosen, held by the run, and free again only when nothing of the agent
is left. An abandoned thread therefore still counts.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import trio

from hermes_trio.core.errors import RATE_LIMIT, SERVER_ERROR, ApiError
from hermes_trio.core.state import InvalidTransition

RETRY_SOON = {"Retry-After": "1"}


class _Use(Enum):
    RESERVED = "reserved"
    HELD = "held"
    FREE = "free"


class Slot:
    """A place for one run."""

    def __init__(self, on_free: Callable[[], None]) -> None:
        self._on_free = on_free
        self._use = _Use.RESERVED

    def hold(self) -> None:
        """The run has begun: from now on only its end frees the slot.

        Raises:
            InvalidTransition: the slot is held or free already.
        """
        if self._use is not _Use.RESERVED:
            raise InvalidTransition(f"a {self._use.value} slot cannot be held")
        self._use = _Use.HELD

    def forfeit(self) -> None:
        """The request is over. A slot that no run took is free again."""
        if self._use is _Use.RESERVED:
            self.release()

    def release(self) -> None:
        """Free the slot, once."""
        if self._use is not _Use.FREE:
            self._use = _Use.FREE
            self._on_free()


class Admission:
    """The door. ``limit`` 0 means that there is none."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_use = 0
        self.is_draining = False

    def admit(self) -> Slot:
        """Reserve a slot.

        Raises:
            ApiError: 503 while the server drains, 429 when all slots are taken.
        """
        self.require_open()
        if self.limit and self.in_use >= self.limit:
            message = f"Too many concurrent runs (max {self.limit}). Try again shortly."
            raise ApiError(429, message, RATE_LIMIT, code="rate_limit_exceeded", headers=RETRY_SOON)
        self.in_use += 1
        return Slot(self._free)

    def require_open(self) -> None:
        """Refuse what would only begin to be cut short.

        Raises:
            ApiError: 503 while the server drains.
        """
        if self.is_draining:
            raise ApiError(
                503, "The server is shutting down.", SERVER_ERROR, code="gateway_draining", headers=RETRY_SOON
            )

    def _free(self) -> None:
        self.in_use -= 1


class Turnstile:
    """One turn at a time for each session: two at once would read the same past and both add to it.

    Whoever comes second is refused, or waits in line if there is patience, in seconds. A place that becomes free goes to
    the first in line at that very moment, so a newcomer finds it taken.
    """

    def __init__(self, patience: float = 0.0) -> None:
        self._patience = patience
        self._busy: dict[tuple[str, str], trio.lowlevel.ParkingLot] = {}

    def enter_nowait(self, principal: str, session_id: str) -> Slot:
        """Reserve a session that is free.

        Raises:
            trio.WouldBlock: another turn is under way.
        """
        key = (principal, session_id)
        if key in self._busy:
            raise trio.WouldBlock
        self._busy[key] = trio.lowlevel.ParkingLot()
        return self._place(key)

    async def enter(self, principal: str, session_id: str, busy: ApiError) -> Slot:
        """Reserve a session, as soon as it is free.

        Raises:
            ApiError: ``busy``, while another turn is under way and patience is at its end.
        """
        try:
            return self.enter_nowait(principal, session_id)
        except trio.WouldBlock:
            if not self._patience:
                raise busy from None
        return await self._queue((principal, session_id), busy)

    async def _queue(self, key: tuple[str, str], busy: ApiError) -> Slot:
        with trio.move_on_after(self._patience):
            await self._busy[key].park()
            # Woken means that the place is ours, even if time has run out or the client has left in the same moment.
            return self._place(key)
        raise busy

    def _place(self, key: tuple[str, str]) -> Slot:
        return Slot(lambda: self._leave(key))

    def _leave(self, key: tuple[str, str]) -> None:
        if self._busy[key]:
            self._busy[key].unpark()
        else:
            del self._busy[key]
