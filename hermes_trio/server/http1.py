"""HTTP/1.1 as Hypercorn speaks it, less the ways out of it: WebSockets and the upgrade to h2c are not offered."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from types import MappingProxyType
from typing import Any

import h11
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.events import Request, Response, StreamClosed
from hypercorn.protocol.h11 import STREAM_ID, H2ProtocolAssumedError, H11Protocol
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream

from hermes_trio.core.errors import bad_request
from hermes_trio.core.wire import BODY_FOLLOWS
from hermes_trio.server.reading import AHEAD, Gate, Paused, Wait
from hermes_trio.server.sending import finishing, give_way

_FRAMING = {b"transfer-encoding", b"connection"}
_CHUNKED = (b"transfer-encoding", b"chunked")
_CLOSE = (b"connection", b"close")

Headers = Iterable[tuple[bytes, bytes]]

_NO_WEBSOCKET = bad_request(
    "This server does not offer WebSockets or other protocol upgrades.", code="no_upgrade"
)


class UpgradeRefused(Exception):
    """A client asked to leave HTTP."""


def tokens(headers: Headers, wanted: bytes) -> set[bytes]:
    """The comma-separated words of a header, in lower case."""
    values = (value for name, value in headers if name == wanted)
    return {token.strip() for value in values for token in value.lower().split(b",")}


def wants_websocket(headers: Headers) -> bool:
    """Whether a request asks for a WebSocket."""
    return b"upgrade" in tokens(headers, b"connection") and b"websocket" in tokens(headers, b"upgrade")


def is_plain(stream: object, status: int) -> bool:
    """Whether an answer is one with a body, to a request in HTTP/1.1."""
    scope = getattr(stream, "scope", {})
    return (
        scope.get("http_version") == "1.1"
        and scope["method"] not in {"HEAD", "CONNECT"}
        and status not in {204, 304}
    )


def is_preface(request: h11.Request) -> bool:
    """Whether a request is the first line of HTTP/2 with prior knowledge."""
    first = (request.method, request.target, request.http_version)
    return first == (b"PRI", b"*", b"2.0") and not list(request.headers)


class Connection(h11.Connection):
    """h11's, which takes a head as it is if that says all: completing one means to check each line three times over."""

    is_complete = False  # the head that is sent next

    def _clean_up_response_headers_for_sending(self, response: h11.Response) -> h11.Response:
        return response if self.is_complete else super()._clean_up_response_headers_for_sending(response)


class Exchange(HTTPStream):
    """One request and its answer."""

    response: Any = MappingProxyType({})  # the application has not answered yet
    is_last = False  # what is sent now is the end of the answer, or next to it

    async def app_send(self, message: Any) -> None:
        """Send what the application says."""
        if message is not None and message["type"] == "http.response.body":
            self.is_last = not message.get("more_body", False)
        await super().app_send(message)

    @property
    def holds(self) -> bool:
        """Whether more follows at once, so that both may go out in one write."""
        if self.state is ASGIHTTPState.REQUEST:
            return bool(self.response.get(BODY_FOLLOWS, False))
        return self.is_last


class PlainH11(H11Protocol):
    """HTTP/1.1, and the way over to HTTP/2 for clients that begin with its preface."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.can_read = Gate(self._pause)
        self.connection = self._wire = Connection(
            h11.SERVER, max_incomplete_event_size=self.config.h11_max_incomplete_size
        )
        self._ends = False  # the client wants the connection to end with this request
        self._held = b""  # of a response: what is followed by more at once

    async def _pause(self, over: Wait) -> None:
        """The next request, or an answer to a proposed upgrade, has to come first: let the connection wait for it."""
        waiting, _ = self.connection.trailing_data
        await self.send(Paused(over, self.connection.receive_data, AHEAD - len(waiting)))

    @property
    def is_unheard(self) -> bool:
        """Whether the client may be in the middle of a request, or of something that is none."""
        return self.connection.their_state in {h11.SEND_BODY, h11.ERROR}

    async def handle(self, event: Event) -> None:
        """Take bytes or the end of the connection."""
        try:
            await super().handle(event)
        except UpgradeRefused:
            await self._refuse_upgrade()

    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of a response."""
        if isinstance(event, StreamClosed):
            with finishing():
                await super().stream_send(event)
            return
        if type(event) is Response:
            self._complete(event)
        await super().stream_send(event)
        if not self._held:  # what is held must go out with what follows it
            await give_way(event, self.stream is None)

    async def _send_h11_event(self, event: Any) -> None:
        """Write what an event is on the wire, together with what was held; or hold it, too, if more follows."""
        try:
            data = self.connection.send(event)
        except h11.LocalProtocolError:
            if self.connection.their_state != h11.ERROR:
                raise
            return
        data, self._held = self._held + (data or b""), b""
        if type(event) is not h11.EndOfMessage and self._more_follows():
            self._held = data
        elif data:
            await self.send(RawData(data=data))

    def _complete(self, head: Response) -> None:
        """Add what frames the answer, where that is plain: a body of known length, or in chunks."""
        names = {name.lower() for name, _ in head.headers}
        self._wire.is_complete = is_plain(self.stream, head.status_code) and not names & _FRAMING
        if self._wire.is_complete:
            head.headers.extend([_CHUNKED] * (b"content-length" not in names) + [_CLOSE] * self._ends)

    def _more_follows(self) -> bool:
        return isinstance(self.stream, Exchange) and self.stream.holds

    async def _create_stream(self, request: h11.Request) -> None:
        """Start a request. Upgrades were refused before, so there is one kind."""
        self._ends = b"close" in tokens(request.headers, b"connection")
        self.stream = Exchange(
            *(self.app, self.config, self.context, self.task_group, self.ssl),
            *(self.client, self.server, self.stream_send, STREAM_ID),
        )
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode("ascii"),
                method=request.method.decode("ascii").upper(),
                raw_path=request.target,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1
        await self.context.mark_request()

    async def _check_protocol(self, event: h11.Request) -> None:
        if is_preface(event):
            trailing, _ = self.connection.trailing_data
            raise H2ProtocolAssumedError(b"PRI * HTTP/2.0\r\n\r\n" + trailing)
        if wants_websocket(event.headers):
            raise UpgradeRefused

    async def _refuse_upgrade(self) -> None:
        """Answer and close: what follows an upgrade is no HTTP and must not be read as such."""
        text = json.dumps(_NO_WEBSOCKET.envelope()).encode()
        own = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(text)),
            (b"connection", b"close"),
        ]
        headers = list(chain(own, self.config.response_headers("h11")))
        await self._send_h11_event(h11.Response(status_code=_NO_WEBSOCKET.status, headers=headers))
        await self._send_h11_event(h11.Data(data=text))
        await self._send_h11_event(h11.EndOfMessage())
        await self.send(Closed())
