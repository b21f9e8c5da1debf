"""What both protocols do around every part of a response."""

from __future__ import annotations

from contextlib import AbstractContextManager

import trio
from hypercorn.protocol.events import Body
from hypercorn.protocol.events import Event as StreamEvent

FINISH_SECONDS = 5.0
"""The bound on the end of a stream, which goes on in spite of cancellation."""


async def give_way(event: StreamEvent, gone: bool) -> None:
    """After every part of a body: a look for cancellation, or a full turn for the others if the client is gone.

    Without it a producer whose data goes nowhere would spin. Only parts of a body: the head and the end of a response
    change states that must change together.
    """
    if isinstance(event, Body):
        await give_way_after_part(gone)


async def give_way_after_part(gone: bool) -> None:
    """The same after what is known to be a part of a body."""
    if gone:
        await trio.lowlevel.checkpoint()
    else:
        await trio.lowlevel.checkpoint_if_cancelled()


def finishing() -> AbstractContextManager[trio.CancelScope]:
    """Around the end of a stream, which is handled whole even if the application's task is cancelled meanwhile.

    Quart-Trio cancels it just there, and the connection would be neither recycled nor closed.
    """
    return trio.CancelScope(relative_deadline=FINISH_SECONDS, shield=True)
