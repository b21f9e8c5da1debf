"""Admission control: a limit on concurrent runs, and one turn at a time per session.

A slot is reserved while the response can still be refused with a status, activated by the run, and
released only when nothing of the agent is left. An abandoned thread therefore still counts.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import trio

from hermes_trio.core.errors import RATE_LIMIT, SERVER_ERROR, ApiError
from hermes_trio.core.state import InvalidTransition

RETRY_SOON = {"Retry-After": "1"}


class _SlotState(Enum):
    RESERVED = "reserved"
    ACTIVE = "active"
    RELEASED = "released"


class Slot:
    """Permission for one run."""

    def __init__(self, on_release: Callable[[], None]) -> None:
        self._on_release = on_release
        self._state = _SlotState.RESERVED

    def activate(self) -> None:
        """Hand the slot over to a run. From now on only the end of that run releases it.

        Raises:
            InvalidTransition: the slot is active or released.
        """
        if self._state is not _SlotState.RESERVED:
            raise InvalidTransition(f"a slot that is {self._state.value} cannot be activated")
        self._state = _SlotState.ACTIVE

    def release_unused(self) -> None:
        """Release the slot unless a run has activated it. Call it at the end of the request."""
        if self._state is _SlotState.RESERVED:
            self.release()

    def release(self) -> None:
        """Release the slot. Releasing it twice is harmless."""
        if self._state is not _SlotState.RELEASED:
            self._state = _SlotState.RELEASED
            self._on_release()


class Admission:
    """Limits the number of concurrent runs; 0 means no limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_use = 0
        self.is_draining = False

    def admit(self) -> Slot:
        """Reserve a slot.

        Raises:
            ApiError: 503 while the server drains, 429 when all slots are taken.
        """
        self.require_free()
        self.in_use += 1
        return Slot(self._release)

    def require_free(self) -> None:
        """Refuse new work if there is no slot for it now.

        Raises:
            ApiError: 503 while the server drains, 429 when all slots are taken.
        """
        self.require_open()
        if self.limit and self.in_use >= self.limit:
            message = f"Too many concurrent runs (max {self.limit}). Try again shortly."
            raise ApiError(429, message, RATE_LIMIT, code="rate_limit_exceeded", headers=RETRY_SOON)

    def require_open(self) -> None:
        """Refuse new work while the server drains.

        Raises:
            ApiError: 503 while the server drains.
        """
        if self.is_draining:
            raise ApiError(
                503,
                "The server is shutting down.",
                SERVER_ERROR,
                code="gateway_draining",
                headers=RETRY_SOON,
            )

    def _release(self) -> None:
        self.in_use -= 1


class SessionLocks:
    """Allows one turn at a time per session: two at once would both continue the same history.

    A second turn is refused, or waits up to ``wait_seconds``. A lock is passed on to the first
    waiter at the moment of its release, so a newcomer cannot overtake.
    """

    def __init__(self, wait_seconds: float = 0.0) -> None:
        self._wait_seconds = wait_seconds
        self._waiters: dict[
            tuple[str, str], trio.lowlevel.ParkingLot
        ] = {}  # of every locked session

    def acquire_nowait(self, principal: str, session_id: str) -> Slot:
        """Lock a session that is free.

        Raises:
            trio.WouldBlock: another turn is under way.
        """
        key = (principal, session_id)
        if key in self._waiters:
            raise trio.WouldBlock
        self._waiters[key] = trio.lowlevel.ParkingLot()
        return self._slot(key)

    async def acquire(self, principal: str, session_id: str, busy: ApiError) -> Slot:
        """Lock a session, waiting for it if configured to.

        Raises:
            ApiError: ``busy``, if another turn is still under way after ``wait_seconds``.
        """
        try:
            return self.acquire_nowait(principal, session_id)
        except trio.WouldBlock:
            if not self._wait_seconds:
                raise busy from None
        key = (principal, session_id)
        with trio.move_on_after(self._wait_seconds):
            await self._waiters[key].park()
            # Unparking hands the lock over, even if the deadline or the client's leaving came in
            # the same moment.
            return self._slot(key)
        raise busy

    @property
    def locked(self) -> list[tuple[str, str]]:
        """The locked sessions, as pairs of principal and session id."""
        return list(self._waiters)

    def _slot(self, key: tuple[str, str]) -> Slot:
        return Slot(lambda: self._unlock(key))

    def _unlock(self, key: tuple[str, str]) -> None:
        if self._waiters[key]:
            self._waiters[key].unpark()
        else:
            del self._waiters[key]
