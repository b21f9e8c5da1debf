"""How many runs at once: one limit for every route that runs an agent.

A slot is reserved while a status can still be chosen, held by the run, and free again only when nothing of the agent
is left. An abandoned thread therefore still counts.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from hermes_trio.core.errors import RATE_LIMIT, SERVER_ERROR, ApiError
from hermes_trio.core.lifecycle import IllegalMove

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
            IllegalMove: the slot is held or free already.
        """
        if self._use is not _Use.RESERVED:
            raise IllegalMove(f"a {self._use.value} slot cannot be held")
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
        if self.is_draining:
            raise ApiError(
                503, "The server is shutting down.", SERVER_ERROR, code="gateway_draining", headers=RETRY_SOON
            )
        if self.limit and self.in_use >= self.limit:
            message = f"Too many concurrent runs (max {self.limit}). Try again shortly."
            raise ApiError(429, message, RATE_LIMIT, code="rate_limit_exceeded", headers=RETRY_SOON)
        self.in_use += 1
        return Slot(self._free)

    def _free(self) -> None:
        self.in_use -= 1


class Turnstile:
    """One turn at a time for each conversation: two at once would read the same past and both add to it."""

    def __init__(self) -> None:
        self._busy: set[tuple[str, str]] = set()

    def enter(self, principal: str, conversation: str) -> Slot:
        """Reserve the conversation.

        Raises:
            ApiError: 409 while another turn is under way.
        """
        key = (principal, conversation)
        if key in self._busy:
            message = f"Another turn is under way in conversation '{conversation}'."
            raise ApiError(409, message, param="conversation", code="conversation_busy")
        self._busy.add(key)
        return Slot(lambda: self._busy.discard(key))
