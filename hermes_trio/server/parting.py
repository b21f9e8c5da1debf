"""The end of a connection whose client is still speaking.

A socket that is closed with something unread in it is reset, and the reset overtakes the answer: a client that sends
too much would see a broken connection in place of the error that says so. So we hang up, take what still comes for a
while without looking at it, and close then.
"""

from __future__ import annotations

import fcntl
import termios
from contextlib import suppress

import trio

from hermes_trio.server.plain_socket import Socket

PARTING_SECONDS = 2.0
"""How long a client has to see that there is no more use in speaking."""

PIECE = 2**16


def hang_up(sock: Socket) -> None:
    """Say that nothing more will be sent. It does not matter if the client has left, or we have."""
    with suppress(OSError):
        sock.shutdown(trio.socket.SHUT_WR)


def has_unread(sock: Socket) -> bool:
    """Whether something has come in that nobody has read."""
    return sock.fileno() >= 0 and any(fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(4)))


async def let_read(stream: trio.abc.ReceiveStream) -> None:
    """Return when the client has left, or had time to."""
    with trio.move_on_after(PARTING_SECONDS), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while await stream.receive_some(PIECE):
            pass
