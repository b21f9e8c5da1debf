"""What every store promises. Nothing here assumes one process or one engine."""

from __future__ import annotations

from typing import Protocol

from hermes_trio.core.messages import Message
from hermes_trio.core.record import TurnRecord


class StoreError(Exception):
    """The store could not do what was asked. What it had acknowledged before is safe."""


class Store(Protocol):
    """Sessions and their turns, each visible only to the principal that made them."""

    async def messages(self, principal: str, session_id: str) -> tuple[Message, ...]:
        """The transcript of a session in the order it was said; empty for an unknown one."""
        ...

    async def save_turn(self, record: TurnRecord) -> None:
        """Append a turn to its session. Returns only when it is durable; a run is saved once, however often asked."""
        ...

    async def check(self) -> None:
        """Return if the store can read and write now.

        Raises:
            StoreError: it cannot, and why.
        """
        ...
