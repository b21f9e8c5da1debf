"""The signals that ask for the end are ours from the first moment of the loop to the last one of the process.

Left to themselves, one of them kills a server that is starting or closing its store, and the other ends it with a
traceback.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import trio
from attrs import define

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@define
class Bell:
    """Whoever is in charge hears each signal by its name: first the start, then the server."""

    ring: Callable[[str], None]


@asynccontextmanager
async def hearing_signals(bell: Bell) -> AsyncIterator[None]:
    """Signals ring the bell for the length of a block, and do nothing after it."""
    with _deaf_afterwards(), trio.open_signal_receiver(*SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_pass_on, signals, bell)
            yield
            nursery.cancel_scope.cancel()


@contextmanager
def _deaf_afterwards() -> Iterator[None]:
    """All is done then: a late signal must not make a bad end of a good one."""
    yield
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


async def _pass_on(signals: AsyncIterable[int], bell: Bell) -> None:
    async for number in signals:
        bell.ring(signal.Signals(number).name)
