"""HTTP/1.1 as Hypercorn speaks it, less the ways out of it: WebSockets and the upgrade to h2c are not offered."""

from __future__ import annotations

from functools import cached_property, lru_cache
from time import time
from typing import Any

import h11
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.events import Body, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H2ProtocolAssumedError, H11Protocol

from hermes_trio.core.wire import SEND_NOW, SEND_PART
from hermes_trio.server.exchange import Exchange, PlainStream
from hermes_trio.server.plain import Head, PlainExchange, RawHeaders, read_head
from hermes_trio.server.reading import AHEAD, Gate, Paused, Wait
from hermes_trio.server.sending import finishing, give_way, give_way_after_part
from hermes_trio.server.upgrades import UpgradeRefused, is_preface, refusal, wants_websocket
from hermes_trio.server.writing import Line


@lru_cache(maxsize=8)
def common_headers(config: Config, _second: int) -> RawHeaders:
    """What Hypercorn adds to every answer. It has the date, so it holds for a second."""
    return config.response_headers("h11")


class PlainH11(H11Protocol):
    """HTTP/1.1, and the way over to HTTP/2 for clients that begin with its preface.

    A plain request is read and answered without h11, which then knows nothing of it and waits for the first of its own.
    """

    def __init__(self, app: Any, config: Any, context: Any, task_group: Any, state: Any, *line: Any) -> None:
        """As Hypercorn's, but for a parser that is not there before it is needed, and a gate that others wait at."""
        self.app, self.config, self.context, self.task_group = app, config, context, task_group
        self.connection_state = state
        self.ssl, self.client, self.server, self.send = line
        self.line: Line  # the connection, past the events: set by whoever has it
        self.stream = None
        self.keep_alive_requests = 0
        self._held = b""  # of a response: what is followed by more at once
        self._plain: PlainExchange | None = None  # the request at hand, if it is plain
        self._is_over = False

    @cached_property
    def connection(self) -> h11.Connection:  # type: ignore[override]  # Hypercorn's is an attribute
        """The parser for what is not plain."""
        return h11.Connection(h11.SERVER, max_incomplete_event_size=self.config.h11_max_incomplete_size)

    @cached_property
    def can_read(self) -> Gate:  # type: ignore[override]  # Hypercorn's is an attribute
        """What whoever reads ahead has to wait for."""
        return Gate(self._pause)

    @property
    def _has_parser(self) -> bool:
        return "connection" in self.__dict__

    async def _pause(self, over: Wait) -> None:
        """The next request, or an answer to a proposed upgrade, has to come first: let the connection wait for it."""
        waiting, _ = self.connection.trailing_data
        await self.send(Paused(over, self.connection.receive_data, AHEAD - len(waiting)))

    @property
    def is_unheard(self) -> bool:
        """Whether the client may be in the middle of a request, or of something that is none."""
        if self._plain is not None:
            return self._plain.missing > 0
        return self._has_parser and self.connection.their_state in {h11.SEND_BODY, h11.ERROR}

    async def handle(self, event: Event) -> None:
        """Take bytes or the end of the connection."""
        try:
            if type(event) is not RawData:
                await super().handle(event)
            elif self._plain is not None:
                await self._go_on(self._plain, event.data)
            elif (head := self.plain_head(event.data)) is not None:
                await self.begin(head, event.data)
            elif event.data or self._has_parser:  # else it is the end of a connection without anything begun
                await super().handle(event)
        except UpgradeRefused:
            await self._refuse_upgrade()

    def plain_head(self, data: bytes) -> Head | None:
        """The head that some data is or begins with, if it is plain and h11 has nothing to do with it."""
        return None if self._has_parser and not self._is_at_rest else read_head(data)

    async def begin(self, head: Head, data: bytes) -> None:
        """Take a plain request, and what has come of its body."""
        self._plain = exchange = PlainExchange(head.length, head.closes)
        self.line.rest(False)
        self.stream = stream = PlainStream(self, *self._parts_of_stream())
        await stream.begin(head, self.connection_state)
        self.keep_alive_requests += 1
        await self.context.mark_request()
        known: dict[str, Any] = stream.scope  # type: ignore[assignment]  # ASGI lets servers add to it
        known[SEND_PART], known[SEND_NOW] = self.send_part, self.send_now
        if len(data) - head.size == head.length:  # it is there as a whole
            exchange.missing = 0
            await stream.take(data[head.size :], is_all=True)
        else:
            await self._begin_in_parts(exchange, stream, data[head.size :])

    async def _begin_in_parts(self, exchange: PlainExchange, stream: PlainStream, data: bytes) -> None:
        """More of a request is to come, or more than it has come."""
        if not exchange.missing:
            await stream.take(b"", is_all=True)
        if data:
            await self._go_on(exchange, data)

    @property
    def _is_at_rest(self) -> bool:
        """Whether h11 has no request at hand and nothing of one."""
        return self.connection.their_state is h11.IDLE and not self.connection.trailing_data[0]

    async def _go_on(self, exchange: PlainExchange, data: bytes) -> None:
        """More of a plain request has come, or its end, or what follows it."""
        if self._is_over:
            return
        if not data:
            await self._cut(exchange)
            return
        body, rest = exchange.take(data)
        if body and isinstance(self.stream, PlainStream):
            await self.stream.take(body, is_all=not exchange.missing)
        if rest:
            await self._wait_with(rest)

    async def _cut(self, exchange: PlainExchange) -> None:
        """The client has said its last word, perhaps in the middle of a request."""
        if not exchange.missing:
            return
        if not exchange.is_begun:
            await self._send_error_response(400)
        await self.send(Closed())

    async def _wait_with(self, rest: bytes) -> None:
        """The client did not wait for its answer: what it says meanwhile is looked at afterwards."""
        self.connection.receive_data(rest)
        if self._plain is not None:
            await self.can_read.clear()
            await self.can_read.wait()
        if not self._is_over:
            await self._handle_events()

    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of a response."""
        if isinstance(event, StreamClosed):
            await self.finish()
            return
        if self._plain is not None:
            await self._send_plain(self._plain, event)
        else:
            await super().stream_send(event)
        if not self._held:  # what is held must go out with what follows it
            await give_way(event, self.stream is None)

    async def finish(self) -> None:
        """The end of an answer: it is handled whole, whoever is cancelled meanwhile."""
        applications: Any = self.task_group
        if applications.is_alone and not self.ssl:  # nothing is waited for on the way
            await self._maybe_recycle()
        else:
            with finishing():
                await self._maybe_recycle()

    async def _send_plain(self, exchange: PlainExchange, event: StreamEvent) -> None:
        match event:
            case Body():
                await self._put(exchange.part(event.data))
            case EndBody():
                await self._put(exchange.end(), is_end=True)
            case Response():
                await self._put(self._head(exchange, event.status_code, event.headers))

    def _head(self, exchange: PlainExchange, status: int, headers: RawHeaders) -> bytes:
        exchange.closes |= self.keep_alive_requests >= self.config.keep_alive_max_requests
        return exchange.head(status, [*headers, *common_headers(self.config, int(time()))])

    def is_answering(self, stream: object) -> bool:
        """Whether a plain request is at hand, and its client is still there."""
        return self.stream is stream and self._plain is not None

    async def send_head(self, status: int, headers: RawHeaders, follows: bool) -> None:
        """Send the head of the answer to a plain request, or hold it if the body follows at once."""
        assert self._plain is not None
        data = self._head(self._plain, status, headers)
        if follows:
            self._held = data
        else:
            await self.line.write(data)

    async def send_last(self, data: bytes) -> None:
        """Send the last part of that answer, and its end."""
        assert self._plain is not None
        data, self._held = self._held + self._plain.part(data) + self._plain.end(), b""
        if data:
            await self.line.write(data)

    async def send_part(self, data: bytes) -> None:
        """Send a part of the answer to a plain request, not the last one: what an application may do without ASGI."""
        if self._plain is not None and self.stream is not None:
            data, self._held = self._held + self._plain.part(data), b""
            await self.line.write(data)
        await give_way_after_part(self._plain is None or self.stream is None)

    def send_now(self, data: bytes) -> bool:
        """Send such a part without waiting; whether all of it has gone out. The rest is held, for whoever sends the next part."""
        if self._plain is None or self.stream is None:
            return False  # whoever waits for it there notices that the client is gone
        rest = self.line.write_now(self._held + self._plain.part(data))
        self._held = bytes(rest)
        return not rest

    async def _send_h11_event(self, event: Any) -> None:
        """Write what an event is on the wire."""
        try:
            data = self.connection.send(event)
        except h11.LocalProtocolError:
            if self.connection.their_state != h11.ERROR:
                raise
            return
        await self._put(data or b"", is_end=type(event) is h11.EndOfMessage)

    async def _put(self, data: bytes, is_end: bool = False) -> None:
        """Write some bytes, together with what was held; or hold them, too, if more follows."""
        data, self._held = self._held + data, b""
        if not is_end and self._more_follows():
            self._held = data
        elif data:
            await self.send(RawData(data=data))

    def _more_follows(self) -> bool:
        return isinstance(self.stream, Exchange) and self.stream.holds

    async def _maybe_recycle(self) -> None:
        """The answer is over: the next request may come, or nothing any more."""
        if self._plain is None:
            await super()._maybe_recycle()
            return
        await self._close_stream()
        self._is_over = self.context.terminated.is_set() or not self._plain.can_go_on
        if "can_read" in self.__dict__:
            await self.can_read.set()
        if self._is_over:
            await self.send(Closed())
        else:
            self._plain = None
            self.line.rest(True)

    async def _close_stream(self) -> None:
        """No more has to do with the request at hand, if any."""
        if isinstance(self.stream, PlainStream):
            await self.stream.end()
            self.stream = None
        else:
            await super()._close_stream()

    async def _create_stream(self, request: h11.Request) -> None:
        """Start a request. Upgrades were refused before, so there is one kind."""
        version = request.http_version.decode("ascii")
        method = request.method.decode("ascii").upper()
        self.stream = stream = Exchange(*self._parts_of_stream())
        await stream.handle(
            Request(STREAM_ID, list(request.headers), version, method, request.target, self.connection_state)
        )
        self.keep_alive_requests += 1
        await self.context.mark_request()

    def _parts_of_stream(self) -> tuple[Any, ...]:
        return (
            *(self.app, self.config, self.context, self.task_group, self.ssl),
            *(self.client, self.server, self.stream_send, STREAM_ID),
        )

    async def _check_protocol(self, event: h11.Request) -> None:
        if is_preface(event):
            trailing, _ = self.connection.trailing_data
            raise H2ProtocolAssumedError(b"PRI * HTTP/2.0\r\n\r\n" + trailing)
        if wants_websocket(event.headers):
            raise UpgradeRefused

    async def _refuse_upgrade(self) -> None:
        """Answer and close: what follows an upgrade is no HTTP and must not be read as such."""
        for event in refusal(self.config.response_headers("h11")):
            await self._send_h11_event(event)
        await self.send(Closed())
