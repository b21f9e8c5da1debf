"""Taking a run from its beginning to its end, for an answer in one piece.

While the answer waits, what is new is taken in the task of whoever says it. Its own task is woken when the run is over, and when
something has to be fetched from the store.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from hermes_trio.runs.log import Changes
from hermes_trio.web.stream_body import Source

Take = Callable[[Changes], None]


async def collect(source: Source, take: Take) -> None:
    """Hand over all changes, until there will be none any more."""
    hand = _Hand(source, take)
    source.write_with(hand.take_now)
    while True:
        try:
            changes = await source.hear()
        except trio.EndOfChannel:
            return
        if hand.trouble is not None:
            raise hand.trouble
        take(changes)


class _Hand:
    """What takes while its task waits."""

    def __init__(self, source: Source, take: Take) -> None:
        self._source, self._take = source, take
        self.trouble: Exception | None = None  # of what was to be taken at once

    def take_now(self) -> bool:
        """Take what is new; False if the task has to see to it."""
        try:
            self._take(self._source.receive_nowait())
        except trio.WouldBlock:
            return False  # it is not in memory
        except Exception as error:  # noqa: BLE001 - our own mistake, and not that of whoever speaks
            self.trouble = error
            return False
        return True
