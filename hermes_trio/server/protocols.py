"""Which protocol a connection speaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import H2ProtocolAssumedError

from hermes_trio.server.http1 import PlainH11
from hermes_trio.server.http2 import BoundedH2
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
        self.plain = None if alpn == "h2" else PlainH11(*parts)  # until the protocol changes
        self.protocol: Protocol = self.plain or BoundedH2(*parts)
        if self.plain is not None:
            self.plain.line = line

    @property
    def is_unheard(self) -> bool:
        """Whether the client may be in the middle of a request."""
        return self.plain is not None and self.plain.is_unheard

    @property
    def _is_at_rest(self) -> bool:
        """Whether no application has to be told anything."""
        return self.plain is not None and self.plain.stream is None

    def let_go(self) -> None:
        """The connection is over: break up what knows itself, as h2 does by a table of its own methods."""
        parts = vars(self.protocol)
        for part in (parts.get("connection"), parts.get("priority")):
            if part is not None:
                vars(part).clear()

    async def initiate(self) -> None:
        """Send what the server says first."""
        await self.protocol.initiate()

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
        self.plain, self.protocol = None, BoundedH2(*self._parts)
        await self.protocol.initiate()
        # The preface looked like a request and stopped the clock of idle connections.
        await self.protocol.send(Updated(idle=True))
        await self.protocol.handle(RawData(data=data))
