"""Letting connections in.

Trio's own loop takes one connection for each turn of all tasks. With a thousand streams such a turn is long, and a client that
comes new would wait for as many of them as there are clients before it. Here as many are let in at a time as could be set up while
the others had their turn, so new and old get about the same part of the time. Where the others need little, one after the other
comes in, and nobody who is in has to wait for a crowd.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

import trio
from attrs import frozen
from hypercorn.utils import parse_socket_addr

from hermes_trio.server.plain_socket import Address, PlainSocket, own_address
from hermes_trio.server.sockets import close_all, has_options

SET_UP_SECONDS = 0.001
"""What it takes to set a turn up, about."""

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

_ANY = frozenset({"0.0.0.0", "::"})  # noqa: S104 - nothing is bound to them here

log = logging.getLogger(__name__)

Stream = PlainSocket | trio.SocketStream | trio.SSLStream[trio.SocketStream]
Enter = Callable[[Stream], None]
Clock = Callable[[], float]


class NoRoom(Exception):
    """The system has no descriptor or no memory for one more connection."""


@frozen
class Doors:
    """The listening sockets of a server."""

    sockets: Sequence[socket.socket]
    tls: ssl.SSLContext | None

    @asynccontextmanager
    async def open(self, enter: Enter) -> AsyncIterator[None]:
        """Let in whoever comes, for as long as the block runs. Afterwards nobody can even wait."""
        try:
            async with trio.open_nursery() as nursery:
                for sock in self.sockets:
                    sock.setblocking(False)
                    nursery.start_soon(Door(sock, self.tls, enter).stand)
                yield
                nursery.cancel_scope.cancel()
        finally:
            close_all(self.sockets)


@frozen
class OwnAddress:
    """That of a listening socket whose options are all as they should be."""

    family: int
    server: Address  # None if it stands for many

    @classmethod
    def of(cls, sock: socket.socket) -> OwnAddress:
        """Ask the socket."""
        address = own_address(sock)
        return cls(sock.family, None if address is None or address[0] in _ANY else address)

    def connection(self, sock: socket.socket, client: Any) -> PlainSocket:
        """One that came in, with what accept(2) tells of its client."""
        sock.setblocking(False)
        return PlainSocket(sock, (parse_socket_addr(self.family, client), self.server))


class Door:
    """One of them."""

    def __init__(
        self,
        sock: socket.socket,
        tls: ssl.SSLContext | None,
        enter: Enter,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._sock, self._tls, self._enter, self._clock = sock, tls, enter, clock
        self._shut_at = -math.inf  # when somebody was left waiting; never, if nobody was

    async def stand(self) -> None:
        """Let in whoever comes, until cancelled."""
        while True:
            await self._somebody()
            try:
                self.let_in()
            except NoRoom:
                await trio.sleep(PAUSE_SECONDS)

    async def _somebody(self) -> None:
        """Give the others their turn, and wait if nobody was left waiting; else the kernel need not watch the door."""
        if math.isfinite(self._shut_at):
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.wait_readable(self._sock)

    def let_in(self) -> None:
        """Let in those who wait, as many as may come at a time.

        Raises:
            NoRoom: the system has none; those who wait go on waiting.
        """
        for sock, address in self._waiting(self._how_many()):
            self._enter(self._spoken_to(sock) if self._own is None else self._own.connection(sock, address))

    def _how_many(self) -> int:
        """If some were left waiting, a turn of all tasks has passed. Half of it was for those whom we let in before."""
        passed = self._clock() - self._shut_at
        return max(1, int(passed / 2 / SET_UP_SECONDS)) if math.isfinite(passed) else 1

    def _waiting(self, most: int) -> Iterator[tuple[socket.socket, Any]]:
        for _ in range(most):
            try:
                come = self._sock.accept()
            except BlockingIOError:
                self._shut_at = -math.inf
                return
            except OSError as error:
                _judge(error)
            else:
                yield come
        self._shut_at = self._clock()

    @cached_property
    def _own(self) -> OwnAddress | None:
        """Where we listen, if connections need no more than to be let in."""
        return OwnAddress.of(self._sock) if self._tls is None and has_options(self._sock) else None

    def _spoken_to(self, sock: socket.socket) -> Stream:
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        if self._tls is None:
            return stream
        return trio.SSLStream(stream, self._tls, server_side=True, https_compatible=True)


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
