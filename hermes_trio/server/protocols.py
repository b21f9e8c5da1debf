"""Which protocol a connection speaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import H2ProtocolAssumedError

from hermes_trio.server.http1 import PlainH11
from hermes_trio.server.http2 import BoundedH2
from hermes_trio.server.plain import Head
from hermes_trio.server.writing import Line

TELL_SECONDS = 2.0
"""How long an application that does not listen may hold up the news that its client is gone."""

Protocol = PlainH11 | BoundedH2


class Wire:
    """The protocol of a connection, which changes once if the client begins with the HTTP/2 preface."""

    def __init__(
        self, parts: Sequence[Any], alpn: str | None, abandon: Callable[[], None], line: Line
    ) -> None:
        self._parts = parts
        self._abandon = abandon
        self.protocol: Protocol = BoundedH2(*parts) if alpn == "h2" else PlainH11(*parts)
        if isinstance(self.protocol, PlainH11):
            self.protocol.line = line

    @property
    def is_unheard(self) -> bool:
        """Whether the client may be in the middle of a request."""
        return isinstance(self.protocol, PlainH11) and self.protocol.is_unheard

    @property
    def _is_at_rest(self) -> bool:
        """Whether no application has to be told anything."""
        return isinstance(self.protocol, PlainH11) and self.protocol.stream is None

    def let_go(self) -> None:
        """The connection is over: break up what knows itself, as h2 does by a table of its own methods."""
        parts = vars(self.protocol)
        for part in (parts.get("connection"), parts.get("priority")):
            if part is not None:
                vars(part).clear()

    async def initiate(self) -> None:
        """Send what the server says first."""
        await self.protocol.initiate()

    def plain_head(self, data: bytes) -> Head | None:
        """The head that some data begins with, if it is plain and nothing of another request is at hand."""
        return self.protocol.plain_head(data) if isinstance(self.protocol, PlainH11) else None

    async def begin(self, head: Head, data: bytes) -> None:
        """Take a plain request."""
        assert isinstance(self.protocol, PlainH11)
        await self.protocol.begin(head, data)

    async def handle(self, event: Event) -> None:
        """Take bytes or the end of the connection.

        An application that leaves its messages unread cannot be told of the end; then all of it is cancelled.
        """
        if not isinstance(event, Closed) or self._is_at_rest:
            await self._handle(event)
            return
        with trio.move_on_after(TELL_SECONDS) as scope:
            await self._handle(event)
        if scope.cancelled_caught:
            self._abandon()

    async def _handle(self, event: Event) -> None:
        try:
            await self.protocol.handle(event)
        except H2ProtocolAssumedError as preface:
            await self._change_over(preface.data)

    async def _change_over(self, data: bytes) -> None:
        self.protocol = BoundedH2(*self._parts)
        await self.protocol.initiate()
        # The preface looked like a request and stopped the clock of idle connections.
        await self.protocol.send(Updated(idle=True))
        await self.protocol.handle(RawData(data=data))
