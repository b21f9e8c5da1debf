"""What those who read a log have in common, whether it is that of a live run or a stored one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import trio

if TYPE_CHECKING:
    from hermes_trio.runs.log import Changes, Pen


class Batches:
    """Whatever can be received from can be looped over."""

    async def receive(self) -> Changes:
        """The next changes; raises ``trio.EndOfChannel`` after the last."""
        raise trio.EndOfChannel

    async def hear(self) -> Changes:
        """The same; nothing, if somebody wakes the reader."""
        return await self.receive()

    @property
    def is_left(self) -> bool:
        """Whether the end, once it is read, leaves nothing to wait for."""
        return True

    def wake(self) -> None:
        """Let whoever waits look up. A reader that need not wait for others cannot be woken."""

    def write_with(self, pen: Pen) -> None:
        """Have what is new written at once where that can be."""

    def __aiter__(self) -> Self:
        """Batch after batch."""
        return self

    async def __anext__(self) -> Changes:
        """The next batch."""
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
