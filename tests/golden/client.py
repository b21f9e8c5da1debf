"""An HTTP client made of plain ASGI messages."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import trio
from attrs import field, frozen

from tests.support.write_through import WriteThroughSide

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


@frozen
class Request:
    """One request. A body that is not bytes goes out as JSON."""

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(factory=dict)

    @property
    def raw_body(self) -> bytes:
        """The body as it is sent."""
        if self.body is None:
            return b""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()

    def scope(self, extra: Mapping[str, str]) -> dict[str, Any]:
        """The ASGI scope, with more headers than are part of the scenario."""
        target, _, query = self.path.partition("?")
        given = {"Host": "server.test", "Content-Type": "application/json", **extra, **self.headers}
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": unquote(target),
            "raw_path": target.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": list(_raw(given)),
            "client": ("127.0.0.1", 50_000),
            "server": ("192.0.2.1", 8642),  # where a request may have any Host
        }


def _raw(headers: Mapping[str, str]) -> Iterator[tuple[bytes, bytes]]:
    for name, value in headers.items():
        if value:
            yield name.lower().encode("ascii"), value.encode("latin-1")


class Exchange:
    """One request under way."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.is_cut = False  # the client left before the end
        self.is_whole = False  # the server ended the body
        self.finished = trio.Event()  # the application returned
        self._grew = trio.Event()
        self._to_app, self._for_app = trio.open_memory_channel[dict[str, Any]](math.inf)
        self._to_app.send_nowait(
            {"type": "http.request", "body": request.raw_body, "more_body": False}
        )
        self._write_through = WriteThroughSide(self._take, lambda: not self.is_cut)

    @property
    def frames(self) -> list[str]:
        """The whole frames of a stream that have arrived."""
        return self.body.decode("utf-8").split("\n\n")[:-1]

    @property
    def json(self) -> Any:
        """The body of an answer in one piece."""
        return json.loads(self.body)

    def disconnect(self) -> None:
        """Leave."""
        if not self.is_whole:
            self.is_cut = True
            self._to_app.send_nowait({"type": "http.disconnect"})

    async def wait_frames(self, count: int) -> None:
        """Return when that many frames have arrived."""
        while len(self.frames) < count:
            assert not self.finished.is_set(), f"the stream ended after {len(self.frames)} frames"
            await self._grew.wait()

    async def run(self, app: Asgi, extra: Mapping[str, str]) -> None:
        """Call the application."""
        try:
            scope = self.request.scope(extra)
            self._write_through.offer(scope)
            await app(scope, self._for_app.receive, self._send)
        finally:
            self.finished.set()
            self._notify()

    async def _send(self, message: Any) -> None:
        await trio.lowlevel.checkpoint()
        if self.is_cut:
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {
                name.decode(): value.decode("latin-1") for name, value in message["headers"]
            }
            self._write_through.is_open = True
        else:
            self._take(self._write_through.rest_of(message.get("body", b"")))
            if not message.get("more_body", False):
                self.is_whole = True
                self._write_through.is_open = False
                self._to_app.send_nowait({"type": "http.disconnect"})
        self._notify()

    def _take(self, data: bytes) -> None:
        self.body += data
        self._notify()

    def _notify(self) -> None:
        self._grew.set()
        self._grew = trio.Event()
