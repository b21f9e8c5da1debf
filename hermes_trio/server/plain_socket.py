"""Connections without TLS, on their own socket.

Trio's stream asks each socket for its kind and sets options on it. What comes in through our own listening sockets has inherited
those, and who is at both ends is known from accept(2). So the stream is made when something has to wait for room in the kernel.
"""

from __future__ import annotations

import socket

import trio
from hypercorn.utils import parse_socket_addr

from hermes_trio.server.reading import receive

Address = tuple[str, int] | None
Ends = tuple[Address, Address]
"""The client's, and ours."""

Socket = socket.socket | trio.socket.SocketType


def close(sock: Socket) -> None:
    """Close a socket; whoever waits for it hears of that."""
    if sock.fileno() >= 0:
        trio.lowlevel.notify_closing(sock)
        sock.close()


def own_address(sock: Socket) -> Address:
    """Ours, as the kernel knows it."""
    return parse_socket_addr(sock.family, sock.getsockname())


class PlainSocket(trio.abc.Stream):
    """Of one connection. The socket must not block."""

    def __init__(self, sock: Socket, ends: Ends | None, stream: trio.SocketStream | None = None) -> None:
        """Take what is known of it: who is at its ends, as far as that is, or a stream that was made by others."""
        self.socket, self.ends, self._stream = sock, ends, stream

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of the data, and wait until the kernel has it."""
        await self._trios_own().send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the kernel has room."""
        await self._trios_own().wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """What comes next; nothing at the end."""
        return await receive(self.socket, max_bytes or 2**16)

    async def aclose(self) -> None:
        """Close at once."""
        close(self.socket)
        await trio.lowlevel.checkpoint()

    def _trios_own(self) -> trio.SocketStream:
        if self._stream is None:
            if self.socket.fileno() < 0:
                raise trio.ClosedResourceError
            assert isinstance(self.socket, socket.socket)
            self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(self.socket))
        return self._stream
