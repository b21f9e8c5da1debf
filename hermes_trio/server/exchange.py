"""One request and its answer over HTTP/1.1, between the application and the protocol."""

from __future__ import annotations

from time import time
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import unquote

from hypercorn.protocol.events import Request
from hypercorn.protocol.h11 import STREAM_ID
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.typing import ConnectionState

from hermes_trio.core.wire import BODY_FOLLOWS
from hermes_trio.server.plain import Head, RawHeaders


class Exchange(HTTPStream):
    """Hypercorn's, which tells what may go out in one write."""

    response: Any = MappingProxyType({})  # the application has not answered yet
    is_last = False  # what is sent now is the end of the answer, or next to it

    async def app_send(self, message: Any) -> None:
        """Send what the application says."""
        if message is not None and message["type"] == "http.response.body":
            self.is_last = not message.get("more_body", False)
        await super().app_send(message)
        if message is not None and message["type"] == "http.response.start":
            self.response = _without_headers(message)

    @property
    def holds(self) -> bool:
        """Whether more follows at once, so that both may go out in one write."""
        if self.state is ASGIHTTPState.REQUEST:
            return bool(self.response.get(BODY_FOLLOWS, False))
        return self.is_last


def _without_headers(message: Any) -> Any:
    """They are on their way, and a stream may last for long."""
    return {**message, "headers": []}


class Out(Protocol):
    """The protocol, as far as the answer to a plain request has to do with it."""

    async def send_head(self, status: int, headers: RawHeaders, follows: bool) -> None:
        """Send the head, or hold it if the body follows at once."""
        ...

    async def send_part(self, data: bytes) -> None:
        """Send a part of the body that is not the last one."""
        ...

    async def send_last(self, data: bytes) -> None:
        """Send the last part of the body, and the end."""
        ...

    async def finish(self) -> None:
        """All of the answer has gone out."""
        ...

    def is_answering(self, stream: object) -> bool:
        """Whether somebody waits for the answer."""
        ...


class PlainStream(Exchange):
    """The answer to a plain request: bytes, past the events that Hypercorn's layers would take apart again."""

    def __init__(self, out: Out, *parts: Any) -> None:
        super().__init__(*parts)
        self._out = out

    async def begin(self, head: Head, state: ConnectionState) -> None:
        """Start the application for a request; whether its host is one of ours is asked only where some were named."""
        if self.config.server_names:
            await self.handle(Request(STREAM_ID, head.headers, "1.1", head.method, head.target, state))
            return
        self.start_time = time()
        self.scope = self._scope(head, state)
        self.app_put = await self.task_group.spawn_app(self.app, self.config, self.scope, self.app_send)

    def _scope(self, head: Head, state: ConnectionState) -> Any:
        """The same that Hypercorn makes of a request."""
        path, _, query = head.target.partition(b"?")
        return {
            "type": "http",
            "http_version": "1.1",
            "asgi": {"spec_version": "2.1", "version": "3.0"},
            "method": head.method,
            "scheme": self.scheme,
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": self.config.root_path,
            "headers": head.headers,
            "client": self.client,
            "server": self.server,
            "state": state.copy(),
            "extensions": {},
        }

    async def end(self) -> None:
        """The answer is out, or nobody waits for it any more: the application hears of the one as of the other."""
        if self.closed:
            return
        self.closed = True
        if self.state is not ASGIHTTPState.CLOSED:
            unanswered: Any = None  # which Hypercorn's log takes, whatever its type says
            await self.config.log.access(self.scope, unanswered, time() - self.start_time)
        await self.app_put({"type": "http.disconnect"})

    async def take(self, body: bytes, is_all: bool) -> None:
        """Some of the body of the request, or all that is left of it."""
        if not self.closed:
            await self.app_put({"type": "http.request", "body": body, "more_body": not is_all})

    async def app_send(self, message: Any) -> None:
        """Send what the application says; whatever is out of the ordinary goes the long way."""
        if message is None and self.closed:
            return  # it has no more to say, and all is said
        if message is None or not self._out.is_answering(self):
            await super().app_send(message)
        elif message["type"] == "http.response.start" and self.state is ASGIHTTPState.REQUEST:
            await self._out.send_head(
                int(message["status"]), list(message.get("headers", ())), message.get(BODY_FOLLOWS, False)
            )
            self.response, self.state = _without_headers(message), ASGIHTTPState.RESPONSE
        elif message["type"] == "http.response.body" and self.state is ASGIHTTPState.RESPONSE:
            await self._send_body(message.get("body", b""), message.get("more_body", False))
        else:
            await super().app_send(message)

    async def _send_body(self, data: bytes, more: bool) -> None:
        if more:
            await self._out.send_part(data)
            return
        await self._out.send_last(data)
        self.state = ASGIHTTPState.CLOSED
        await self.config.log.access(self.scope, self.response, time() - self.start_time)
        await self._out.finish()
