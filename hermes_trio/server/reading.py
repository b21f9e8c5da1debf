"""Looking out for a client while its next request has to wait.

h11 gives no request out before the last one is answered, and Hypercorn's reader stands still until then: it would not
see the client leave. So somebody else reads on, a little, and watches the rest of the time.
"""

from __future__ import annotations

import os
import select
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol
from weakref import WeakMethod

import trio
from attrs import frozen
from hypercorn.events import Event
from hypercorn.trio.worker_context import EventWrapper

AHEAD = 2**16
"""How much of what is not its turn yet we keep; the rest stays in the kernel, and then with the client."""

LOOK_SECONDS = 0.5
"""How often we look for a client of whom we keep that much."""

GONE = (trio.BrokenResourceError, trio.ClosedResourceError)

Wait = Callable[[], Awaitable[None]]


@frozen
class Paused(Event):
    """A protocol cannot go on until something is over; it can keep a number of bytes meanwhile."""

    over: Wait
    take: Callable[[bytes], None]
    room: int


class Gate(EventWrapper):
    """Hypercorn's event whose waiting somebody else does: ``pause`` is called with what there is to wait for."""

    def __init__(self, pause: Callable[[Wait], Awaitable[None]]) -> None:
        """Made by the one whose method is called, so this does not keep him alive."""
        super().__init__()
        self._pause = WeakMethod(pause)

    async def wait(self) -> None:
        """Have somebody wait until the event is set."""
        pause = self._pause()
        assert pause is not None
        await pause(super().wait)


class Descriptor(Protocol):
    """A socket, of whatever kind; closed ones have the number -1."""

    def fileno(self) -> int:
        """Its number."""
        ...


def look(sock: Descriptor, most: int) -> bytes:
    """What has come in; nothing at the end.

    Raises:
        trio.WouldBlock: nothing yet.
        trio.BrokenResourceError: the connection is broken.
        trio.ClosedResourceError: we have closed it.
    """
    try:
        return os.read(sock.fileno(), most)
    except BlockingIOError as error:
        raise trio.WouldBlock from error
    except OSError as error:
        if sock.fileno() < 0:
            raise trio.ClosedResourceError from error
        raise trio.BrokenResourceError(str(error)) from error


async def receive(sock: Descriptor, most: int) -> bytes:
    """What comes next, after others had their turn; nothing at the end.

    Raises:
        trio.BrokenResourceError: the connection is broken.
        trio.ClosedResourceError: we have closed it.
    """
    while sock.fileno() >= 0:
        await trio.lowlevel.wait_readable(sock)
        try:
            return look(sock, most)
        except trio.WouldBlock:
            continue
    await trio.lowlevel.checkpoint_if_cancelled()
    raise trio.ClosedResourceError


async def until_gone(stream: trio.abc.Stream, sock: Descriptor, paused: Paused) -> None:
    """Read what there is room for, watch without reading then, and return when the client is gone."""
    room = paused.room
    with suppress(*GONE):
        while room > 0:
            data = await stream.receive_some(room)
            if not data:
                return
            paused.take(bytes(data))
            room -= len(data)
        await _until_hung_up(sock)


async def _until_hung_up(sock: Descriptor) -> None:
    while not has_hung_up(sock.fileno()):  # noqa: ASYNC110 - unread data would end any waiting at once
        await trio.sleep(LOOK_SECONDS)


def has_hung_up(descriptor: int) -> bool:
    """Whether an end or a reset has come in, even behind data that nobody has read; -1 is what we have closed."""
    if descriptor < 0:
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    return bool(poll.poll(0))
