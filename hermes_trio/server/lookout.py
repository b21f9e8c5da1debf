"""Seeing clients leave, for all connections of a server at once.

A connection that answers a request does not read. Were each to have a task that does, only to see the end come, that task would cost
as much as many a request, and ten kilobytes for as long as a stream lasts. The kernel tells one task as well: a hang-up is
news of its own, whether or not something unread lies before it.
"""

from __future__ import annotations

import select
from contextlib import suppress
from typing import Protocol

import trio

from hermes_trio.server.faults import Faults
from hermes_trio.server.reading import has_hung_up

_HANG_UP = select.EPOLLRDHUP | select.EPOLLET  # once for each, and not for what comes in


class Watched(Protocol):
    """A connection whose client may leave."""

    async def leave(self) -> None:
        """The client has left."""
        ...


class Lookout:
    """One for each server; :meth:`run` is its task."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._epoll = select.epoll()
        self._watched: dict[int, Watched] = {}
        self.is_open = True  # it still takes connections: until the server is to end

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, descriptor: int, connection: Watched) -> None:
        """Tell a connection when its client leaves, or that it has left."""
        self._watched[descriptor] = connection
        self._epoll.register(descriptor, _HANG_UP)

    def ignore(self, descriptor: int, connection: Watched) -> None:
        """A connection has its answer and waits for the next request: it reads, and sees for itself who leaves."""
        self._epoll.unregister(descriptor)
        self.forget(descriptor, connection)

    def forget(self, descriptor: int, connection: Watched) -> None:
        """A connection is closed. The kernel knows, and its number may be another's by now."""
        if self._watched.get(descriptor) is connection:
            del self._watched[descriptor]
        if not self.is_open:
            self._end_if_alone()

    def retire(self) -> None:
        """Take no more, and end with the last one."""
        self.is_open = False
        self._end_if_alone()

    def _end_if_alone(self) -> None:
        if not self._watched and not self._epoll.closed:
            trio.lowlevel.notify_closing(self._epoll)
            self._epoll.close()

    async def run(self) -> None:
        """Look out until the last one is gone."""
        try:
            async with trio.open_nursery() as nursery:
                with suppress(trio.ClosedResourceError):
                    await self._look(nursery)
        finally:
            self._epoll.close()

    async def _look(self, nursery: trio.Nursery) -> None:
        while not self._epoll.closed:
            await trio.lowlevel.wait_readable(self._epoll)
            for descriptor, _ in self._epoll.poll(0):
                # A child process may have kept a connection that we closed, whose number is another's now: so look.
                if descriptor in self._watched and has_hung_up(descriptor):
                    nursery.start_soon(self._tell, self._watched[descriptor])

    async def _tell(self, connection: Watched) -> None:
        try:
            await connection.leave()
        except Exception as error:  # noqa: BLE001 - of one connection, and no other's business
            self._faults.record(error)
