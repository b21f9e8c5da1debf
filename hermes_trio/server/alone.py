"""Answering requests in the task of their connection, without another that reads beside.

That holds for requests which are plain and there as a whole: nothing is left to read, and the lookout sees the client leave. The
first one that is not ends it, and the connection goes on in the other way, with all that was read.
"""

from __future__ import annotations

from contextlib import suppress

import trio
from hypercorn.events import Closed
from hypercorn.trio.tcp_server import MAX_RECV

from hermes_trio.mailbox import BRIEFLY
from hermes_trio.server.applications import Applications
from hermes_trio.server.http1 import PlainH11
from hermes_trio.server.keeping import Keepers
from hermes_trio.server.plain import Head
from hermes_trio.server.plain_socket import Socket, close
from hermes_trio.server.protocols import Wire
from hermes_trio.server.reading import GONE, look, receive


class Alone:
    """A connection as long as its only task does everything."""

    def __init__(self, sock: Socket, wire: Wire, applications: Applications, keepers: Keepers) -> None:
        self._sock, self._wire, self._applications, self._keepers = sock, wire, applications, keepers
        self.ahead = b""  # read, and not looked at yet
        self.is_over = False  # there is nothing more to be read
        self._is_waiting = False  # for a request
        self._watched = -1  # the descriptor that the lookout knows us by, while an answer is under way
        self._has_read = False

    async def run(self) -> None:
        """Answer one request after the other, up to the first that is not for us, or to the end of the server."""
        protocol, lookout = self._wire.plain, self._keepers.lookout
        while protocol is not None and not self.is_over:
            head = await self._next_head(protocol) if lookout.is_open else None
            if head is None or not lookout.is_open:
                return
            whole = head.whole
            data, self.ahead = self.ahead[:whole], self.ahead[whole:]
            await protocol.begin(head, data)
            await self._answer()

    def let_go(self) -> None:
        """The connection is over."""
        del self._wire

    async def _next_head(self, protocol: PlainH11) -> Head | None:
        """The head of the next request, if that is one for us; all that was read is ahead, in any case."""
        if not self._has_read:
            self._look()
        if not self.ahead:
            await self._wait()
        head = None if self.is_over else protocol.plain_head(self.ahead)
        if head is None or (whole := head.whole) > MAX_RECV:
            return None
        if len(self.ahead) < whole:
            await self._read_on(whole)
        return head if len(self.ahead) >= whole else None

    def _look(self) -> None:
        """Take what a client sends with its connection. Afterwards it is silent for a while: to look would be in vain."""
        self._has_read = True
        try:
            self.ahead = look(self._sock, MAX_RECV)
        except (trio.WouldBlock, *GONE):
            pass  # whoever waits for it hears of it

    async def _wait(self) -> None:
        """Take what comes next; nothing comes if the connection is over."""
        self._is_waiting = True
        self._keepers.idle.add(self)
        try:
            self.ahead = await receive(self._sock, MAX_RECV)
        except GONE:
            pass
        finally:
            self._keepers.idle.remove(self)
            self._is_waiting = False
        self.is_over = not self.ahead

    def silent(self) -> None:
        """The client has asked for nothing for too long."""
        self.close_if_waiting()

    def close_if_waiting(self) -> None:
        """End a wait for a request."""
        if self._is_waiting:
            close(self._sock)

    async def _read_on(self, whole: int) -> None:
        """Most requests follow their head at once."""
        with trio.move_on_after(BRIEFLY), suppress(*GONE):
            while len(self.ahead) < whole and (data := await receive(self._sock, MAX_RECV)):
                self.ahead += data

    async def _answer(self) -> None:
        """Let the application answer, and see to it that it hears of a client who leaves, or has left already."""
        self._watched = self._sock.fileno()
        if self._watched >= 0:
            self._keepers.lookout.watch(self._watched, self)
        try:
            while self._applications.asked:
                await self._applications.answer()
        finally:
            if self._watched >= 0:  # it was not told before
                self.answered()

    def answered(self) -> None:
        """All of an answer has gone out: who leaves now is none of the application's business."""
        descriptor, self._watched = self._watched, -1
        if descriptor < 0:
            return  # it was told before, or nobody looks out for us
        if descriptor == self._sock.fileno():
            self._keepers.lookout.ignore(descriptor, self)
        else:
            self._keepers.lookout.forget(descriptor, self)

    async def leave(self) -> None:
        """The client has left."""
        if self._watched >= 0:
            self.is_over = True
            await self._wire.handle(Closed())
