"""Letting connections in.

Trio's own loop takes one connection for each turn of all tasks. With a thousand streams such a turn is long, and a client that
comes new would wait for as many of them as there are clients before it. Here the share of new connections grows with the
number of those that are open, so both get about the same part of the time, however many there are.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import trio
from attrs import frozen

OPEN_FOR_EACH_NEW = 32
"""For so many connections that are open, one is let in at a time. Setting a turn up costs about as much as their next words."""

PAUSE_SECONDS = 0.1
"""How long nobody is let in after the system had no room for one more."""

_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
# Told by accept(2), but about the connection, which ended while it waited for us.
_GONE = frozenset(
    {
        errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENETDOWN, errno.ENOPROTOOPT, errno.EHOSTDOWN,
        errno.ENONET, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT,
    }
)  # fmt: skip

log = logging.getLogger(__name__)

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]
Enter = Callable[[Stream], None]
Count = Callable[[], int]


class NoRoom(Exception):
    """The system has no descriptor or no memory for one more connection."""


@frozen
class Doors:
    """The listening sockets of a server."""

    sockets: Sequence[socket.socket]
    tls: ssl.SSLContext | None

    @asynccontextmanager
    async def open(self, enter: Enter, count_open: Count) -> AsyncIterator[None]:
        """Let in whoever comes, for as long as the block runs. Afterwards nobody can even wait."""
        try:
            async with trio.open_nursery() as nursery:
                for sock in self.sockets:
                    sock.setblocking(False)
                    nursery.start_soon(Door(sock, self.tls, enter, count_open).stand)
                yield
                nursery.cancel_scope.cancel()
        finally:
            for sock in self.sockets:
                sock.close()


@frozen
class Door:
    """One of them."""

    sock: socket.socket
    tls: ssl.SSLContext | None
    enter: Enter
    count_open: Count

    async def stand(self) -> None:
        """Let in whoever comes, until cancelled."""
        while True:
            await trio.lowlevel.wait_readable(self.sock)
            try:
                self.let_in()
            except NoRoom:
                await trio.sleep(PAUSE_SECONDS)

    def let_in(self) -> None:
        """Let in those who wait, as many as may come at a time.

        Raises:
            NoRoom: the system has none; those who wait go on waiting.
        """
        for sock in self._waiting(1 + self.count_open() // OPEN_FOR_EACH_NEW):
            stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
            self.enter(self._spoken_to(stream))

    def _waiting(self, most: int) -> Iterator[socket.socket]:
        for _ in range(most):
            try:
                sock, _address = self.sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                _judge(error)
            else:
                yield sock

    def _spoken_to(self, stream: trio.SocketStream) -> Stream:
        if self.tls is None:
            return stream
        return trio.SSLStream(stream, self.tls, server_side=True, https_compatible=True)


def _judge(error: OSError) -> None:
    """Raise what is not only about the connection that was to be let in."""
    if error.errno in _NO_ROOM:
        log.error(
            "accept returned %s (%s); trying again in %s seconds",
            errno.errorcode[error.errno or 0],
            os.strerror(error.errno or 0),
            PAUSE_SECONDS,
        )
        raise NoRoom from error
    if error.errno not in _GONE:
        raise error
