"""What every store promises. Nothing here assumes one process or one engine."""

from __future__ import annotations

from typing import Protocol

from hermes_trio.core.messages import Message
from hermes_trio.core.record import TurnRecord


class StoreError(Exception):
    """The store could not do what was asked. What it had acknowledged before is safe."""


class Store(Protocol):
    """Sessions and their turns, each visible only to the principal that made them.

    Every method raises :class:`StoreError` when the store fails or is closed, and when a principal, session or run
    id is not valid Unicode. Text inside messages may hold anything a Python string can.
    """

    async def messages(self, principal: str, session_id: str) -> tuple[Message, ...]:
        """The transcript of a session in the order it was said; empty for an unknown one."""
        ...

    async def save_turn(self, record: TurnRecord) -> None:
        """Append a turn to its session. Returns only when it is durable; a run is saved once, however often asked.

        A turn is saved whole or not at all. A caller that is cancelled here does not know which: the turn may be
        saved all the same. Where that matters, shield the call, or ask again: asking twice changes nothing.
        """
        ...

    async def check(self) -> None:
        """Return if the store can read and write now.

        Raises:
            StoreError: it cannot, and why.
        """
        ...
