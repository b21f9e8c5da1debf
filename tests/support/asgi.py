"""A client in memory: it calls the ASGI application in a Trio task, and can leave or stop reading at any moment.

The server side behaves like Hypercorn, because the application relies on it: sending after the client
has left does nothing, a client that does not read blocks ``send``, and the end of a response is
followed by ``http.disconnect`` while the last ``send`` still runs.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import unquote

import trio
from attrs import define, field, frozen

from hermes_trio.web.middleware import AsgiApp
from tests.support.sse import Frame, parse_frame, parse_sse
from tests.support.write_through import WriteThroughSide

TIMEOUT = 10.0  # seconds after which a test fails
Headers = Mapping[str, str]
NO_HEADERS: Headers = {}


@contextmanager
def real_timeout() -> Iterator[None]:
    """Fail a wait that takes too long, in real seconds: a mock clock may stand still."""
    with trio.CancelScope() as scope:
        token = trio.lowlevel.current_trio_token()
        timer = threading.Timer(TIMEOUT, token.run_sync_soon, [scope.cancel])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
    if scope.cancelled_caught:
        raise trio.TooSlowError


@frozen
class HttpResponse:
    """A whole response."""

    status: int
    raw_headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        """The headers by lower-case name; a repeated name is an error."""
        found = dict(self.raw_headers)
        assert len(found) == len(self.raw_headers), self.raw_headers
        return found

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        """The error in the envelope."""
        assert self.headers["content-type"] == "application/json"
        assert set(self.json) == {"error"}
        return self.json["error"]

    @property
    def frames(self) -> list[Frame]:
        return parse_sse(self.body)


class Exchange:
    """One request in progress."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.scope = scope
        self.raw = b""
        self.over = trio.Event()  # the application returned
        self.was_finished = False  # the last send returned: a server would recycle the connection
        self._status = 0
        self._headers: tuple[tuple[str, str], ...] = ()
        self._read = 0
        self._is_gone = False
        self._news, self._reads = trio.Event(), trio.Event()
        self._reads.set()
        self._to_app, self._for_app = trio.open_memory_channel[dict[str, Any]](math.inf)
        self._write_through = WriteThroughSide(
            self._take, lambda: self._reads.is_set() and not self._is_gone
        )
        self._write_through.offer(scope)

    # -- what the client does --

    def upload(self, *parts: bytes, more: bool = False) -> None:
        """Send parts of the body; the last one ends it unless more is to come."""
        for number, part in enumerate(parts, 1):
            more_body = more or number < len(parts)
            self._to_app.send_nowait({"type": "http.request", "body": part, "more_body": more_body})

    def disconnect(self) -> None:
        """Leave."""
        self._is_gone = True
        self._reads.set()
        self._to_app.send_nowait({"type": "http.disconnect"})

    def stall(self) -> None:
        """Stop reading: the next send of the application blocks."""
        self._reads = trio.Event()

    def read_on(self) -> None:
        """Read again."""
        self._reads.set()

    async def started(self) -> HttpResponse:
        """Wait for the status line and the headers."""
        await self._until(lambda: bool(self._status))
        return self.answer

    async def block(self, encoding: str = "ascii") -> str:
        """Return the next block of the stream unparsed. All dialects but one are plain ASCII."""
        await self._until(lambda: b"\n\n" in self.raw[self._read :])
        end = self.raw.index(b"\n\n", self._read)
        block, self._read = self.raw[self._read : end], end + 2
        return block.decode(encoding)

    async def frame(self) -> Frame:
        """Return the next event of the stream."""
        return parse_frame(await self.block())

    async def frame_where(self, **fields: Any) -> Frame:
        """Return the next event whose data has all of these fields."""
        while True:
            frame = await self.frame()
            if not frame.comment and not frame.is_done and fields.items() <= frame.json.items():
                return frame

    async def content(self, text: str) -> None:
        """Read until this much text has arrived."""
        said = ""
        while said != text:
            assert text.startswith(said), said
            frame = await self.frame()
            if not frame.comment:
                said += frame.json["choices"][0]["delta"].get("content", "")

    async def end(self) -> HttpResponse:
        """Wait until the application has returned."""
        with real_timeout():
            await self.over.wait()
        return self.answer

    @property
    def unreceived(self) -> int:
        """The number of messages that the application has not received yet."""
        return self._for_app.statistics().current_buffer_used

    @property
    def answer(self) -> HttpResponse:
        """Return what has arrived so far."""
        return HttpResponse(self._status, self._headers, self.raw)

    async def _until(self, condition: Callable[[], bool]) -> None:
        if condition():
            return
        with real_timeout():
            while not condition():
                assert not self.over.is_set(), f"the answer is over: {self.answer}"
                await self._news.wait()

    # -- what a server does --

    async def run(self, app: AsgiApp) -> None:
        """Call the application."""
        try:
            await app(self.scope, self._for_app.receive, self._send)
        finally:
            self.over.set()
            self._tell()

    async def _send(self, message: Any) -> None:
        await trio.lowlevel.checkpoint()
        await self._reads.wait()
        if self._is_gone:
            return
        if message["type"] == "http.response.start":
            self._start(message)
        else:
            assert self._status, "a body before its headers"
            self._take(self._write_through.rest_of(message["body"]))
            if not message["more_body"]:
                self._write_through.is_open = False
                await self._finish()

    def _take(self, data: bytes) -> None:
        self.raw += data
        self._tell()

    def _start(self, message: Any) -> None:
        assert not self._status, "the answer began twice"
        self._status = message["status"]
        self._write_through.is_open = True
        self._headers = tuple(
            (k.decode("ascii"), v.decode("latin-1")) for k, v in message["headers"]
        )
        assert all(name == name.lower() and "\n" not in value for name, value in self._headers)
        self._tell()

    async def _finish(self) -> None:
        self._to_app.send_nowait({"type": "http.disconnect"})
        for _ in range(
            3
        ):  # closing a connection takes a few steps, and a cancellation would end them
            await trio.lowlevel.checkpoint()
        self.was_finished = True

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()


@define
class Client:
    """Talks to one application."""

    app: AsgiApp
    headers: Headers = field(factory=dict)

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        parts: Iterable[bytes] = (b"",),
        headers: Headers = NO_HEADERS,
        is_whole: bool = True,
    ) -> AsyncIterator[Exchange]:
        """Begin a request; leaving the block leaves the server."""
        exchange = Exchange(make_scope(method, path, {**self.headers, **headers}))
        exchange.upload(*parts, more=not is_whole)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.run, self.app)
            yield exchange
            exchange.disconnect()
            await exchange.end()

    def post(
        self, path: str, body: object, headers: Headers = NO_HEADERS, method: str = "POST"
    ) -> AbstractAsyncContextManager[Exchange]:
        """Begin a request with a JSON body."""
        return self.open(method, path, [json.dumps(body).encode()], {**JSON, **headers})

    async def get(
        self, path: str, headers: Headers = NO_HEADERS, method: str = "GET"
    ) -> HttpResponse:
        """Send a request without a body, and return the whole response."""
        async with self.open(method, path, headers=headers) as exchange:
            return await exchange.end()

    async def send(
        self, path: str, body: object, headers: Headers = NO_HEADERS, method: str = "POST"
    ) -> HttpResponse:
        """Send a request with a JSON body, and return the whole response."""
        async with self.post(path, body, headers, method) as exchange:
            return await self._ended(exchange)

    async def send_raw(
        self, path: str, *parts: bytes, headers: Headers = NO_HEADERS, method: str = "POST"
    ) -> HttpResponse:
        """Send a request with a body of any bytes, in parts, and return the whole response."""
        async with self.open(method, path, parts, {**JSON, **headers}) as exchange:
            return await self._ended(exchange)

    async def _ended(self, exchange: Exchange) -> HttpResponse:
        answer = await exchange.end()
        assert exchange.was_finished, "the answer was cut"
        return answer


JSON = {"Content-Type": "application/json"}


def make_scope(method: str, path: str, headers: Headers) -> dict[str, Any]:
    """Return the ASGI scope of a request."""
    target, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(target),
        "raw_path": target.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": list(_raw(headers)),
        "client": ("127.0.0.1", 50_000),
        "server": ("192.0.2.1", 8642),  # where a request may have any Host
    }


def _raw(headers: Headers) -> Iterator[tuple[bytes, bytes]]:
    for name, value in {"Host": "server.test", **headers}.items():
        yield name.lower().encode("ascii"), value.encode("latin-1")
