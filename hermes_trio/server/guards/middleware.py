"""The application as one connection sees it: an ASGI middleware between Hypercorn and the framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import trio
from hypercorn.typing import AppWrapper

from hermes_trio.runs.delivery import EXTENSION
from hermes_trio.server.guards.stream import GuardedStream
from hermes_trio.server.write_through import WriteThrough, offers_write_through

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_DISCONNECT = {"type": "http.disconnect"}


class GuardedApp:
    """Calls the application for the requests of one connection.

    Args:
        app: Hypercorn's wrapper of the application.
        stream: The connection.
        nursery: Runs until the connection is closed.
    """

    def __init__(self, app: AppWrapper, stream: GuardedStream, nursery: trio.Nursery) -> None:
        self.stream = stream
        self._app, self._nursery = app, nursery

    async def __call__(self, scope: Any, receive: Any, send: Any, *hypercorn: Any) -> None:
        """Run the application for one request."""
        with self.stream.request():
            exchange = _Exchange(scope, receive, send, self.stream, self._nursery)
            try:
                await self._app(scope, exchange.receive, exchange.send, *hypercorn)  # type: ignore[arg-type]
            finally:
                exchange.discard_upload()


class _Exchange:
    """One request and its response: `receive` and `send` as the application gets them."""

    def __init__(
        self, scope: Any, receive: Receive, send: Send, stream: GuardedStream, nursery: trio.Nursery
    ) -> None:
        self._receive, self._send, self._stream, self._nursery = receive, send, stream, nursery
        self._is_receiving = False
        self._discarded: trio.Event | None = None  # set once the rest of the input is discarded
        self._write_through: WriteThrough | None = None
        if offers_write_through(scope):
            self._write_through = scope["extensions"][EXTENSION] = WriteThrough(stream.try_write)
        if _has_body(scope):
            stream.uploads.add(self)

    async def receive(self) -> Message:
        """Receive the next message."""
        if self._discarded is not None:
            await self._discarded.wait()
            return dict(_DISCONNECT)
        self._is_receiving = True
        try:
            message = await self._receive()
        finally:
            self._is_receiving = False
        if not message.get("more_body", False):
            self._stream.uploads.discard(self)
        return message

    async def send(self, message: Message) -> None:
        """Send a message, or none of it if cancelled before. The last part of a body is sent in any case.

        Defect: The only cancellation point of `TCPServer.protocol_send` lies between the protocol, which counts the
        bytes as sent, and the socket: a cancelled producer loses a chunk, or with HTTP/2 the header compression of
        the whole connection (no issue known). `WriteLock` closes that point, so one is needed before.
        Delete when: the lock of `protocol_send` is acquired inside its shield.
        """
        kind = message["type"]
        is_last = kind == "http.response.body" and not message.get("more_body", False)
        if not is_last:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            if self._write_through is not None:
                self._write_through.response_ended()
            self.discard_upload()
        await self._send(message)
        if kind == "http.response.start" and self._write_through is not None:
            self._write_through.response_started(message)

    def discard_upload(self) -> None:
        """Receive the rest of an upload that the application does not want.

        Defect: Messages for the application wait in a queue of ten. An application that answers without receiving
        fills it up, and Hypercorn then waits for ever to put the disconnect into it, and reads nothing more from
        the connection (no issue known).
        Delete when: closing a stream in Hypercorn does not wait for the application.
        """
        if self in self._stream.uploads and not self._is_receiving and self._discarded is None:
            self._discarded = trio.Event()
            self._nursery.start_soon(self._discard)

    async def _discard(self) -> None:
        assert self._discarded is not None
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._stream.uploads.discard(self)
        self._discarded.set()


def _has_body(scope: Any) -> bool:
    """Whether the client may send a body; in HTTP/2 no header announces it."""
    if scope["http_version"] == "2":
        return True
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )
