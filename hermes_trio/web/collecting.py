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

    def take_now() -> bool:
        take(source.receive_nowait())
        return True

    source.write_with(take_now)
    while True:
        try:
            changes = await source.hear()
        except trio.EndOfChannel:
            return
        take(changes)
