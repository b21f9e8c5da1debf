"""The application as one connection sees it.

An ASGI middleware between Hypercorn and the framework.

It also offers write-through, as ``scope["extensions"]["hermes_trio.write_through"]``: a streaming
application may hand over a part of the body in the same step that produced it. The ordinary `send`
costs about ten times as much.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import trio
from hypercorn.typing import AppWrapper

from hermes_trio.runs.delivery import EXTENSION
from hermes_trio.server.guards.stream import GuardedStream

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_DISCONNECT = {"type": "http.disconnect"}
_FRAMING = {b"content-length", b"transfer-encoding"}
_BODILESS = {204, 304}


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
            exchange = _GuardedExchange(scope, receive, send, self.stream, self._nursery)
            try:
                await self._app(scope, exchange.receive, exchange.send, *hypercorn)  # type: ignore[arg-type]
            finally:
                exchange.discard_upload()


class WriteThroughExtension:
    """Writes chunks of one response straight to the socket.

    Args:
        try_write: Writes a framed chunk without blocking and returns True if all of it was written.
    """

    __slots__ = ("_is_chunked", "_sends", "_try_write")

    def __init__(self, try_write: Callable[[bytes], bool]) -> None:
        self._try_write = try_write
        self._is_chunked = False
        self._sends = 0  # ordinary ones in progress

    def try_send(self, data: bytes) -> bool:
        """Write `data` as one HTTP chunk without blocking. Return True if all of it was written.

        After False, `data` may have been written in part, so the caller must send the very same
        `data` next, alone, by an ordinary ``http.response.body`` message; the server skips what the
        client already has. It is False as long as the response is not a started, unfinished chunked
        one, while another message is being sent, and once the client is gone. It never raises.
        """
        if not self._is_chunked or self._sends:
            return False
        if not data:
            return True  # an empty chunk would end the response
        return self._try_write(b"%x\r\n%b\r\n" % (len(data), data))

    async def send(self, send: Callable[[Any], Awaitable[None]], message: Any) -> None:
        """Send an ordinary message, and note what it means for the framing."""
        kind = message["type"]
        if kind == "http.response.body" and not message.get("more_body", False):
            self._is_chunked = False
        self._sends += 1
        try:
            await send(message)
        finally:
            self._sends -= 1
        if (
            kind == "http.response.start"
        ):  # h11 frames a body in chunks if nothing else says its length
            names = {bytes(name).lower() for name, _ in message.get("headers", ())}
            self._is_chunked = not (names & _FRAMING or int(message["status"]) in _BODILESS)


class _GuardedExchange:
    """One request and its response: `receive` and `send` as the application gets them."""

    def __init__(
        self, scope: Any, receive: Receive, send: Send, stream: GuardedStream, nursery: trio.Nursery
    ) -> None:
        self._receive, self._send, self._stream, self._nursery = receive, send, stream, nursery
        self._is_receiving = False
        self._discarded: trio.Event | None = None  # set once the rest of the input is discarded
        self._write_through: WriteThroughExtension | None = None
        if offers_write_through(scope):
            self._write_through = scope["extensions"][EXTENSION] = WriteThroughExtension(
                stream.try_write
            )
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
        """Send a message, or none of it if cancelled before.

        The last part of a body is sent in any case.

        Defect: The only cancellation point of `TCPServer.protocol_send` lies between the protocol,
        which counts the bytes as sent, and the socket: a cancelled producer loses a chunk, or with
        HTTP/2 the header compression of the whole connection (no issue known). `WriteLock` closes
        that point, so one is needed before. Delete when: the lock of `protocol_send` is acquired
        inside its shield.
        """
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.discard_upload()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        if self._write_through is None:
            await self._send(message)
        else:
            await self._write_through.send(self._send, message)

    def discard_upload(self) -> None:
        """Receive the rest of an upload that the application does not want.

        Defect: Messages for the application wait in a queue of ten. An application that answers
        without receiving fills it up, and Hypercorn then waits forever to put the disconnect into
        it, and reads nothing more from the connection (no issue known). Delete when: closing a
        stream in Hypercorn does not wait for the application.
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


def offers_write_through(scope: Mapping[str, Any]) -> bool:
    """Whether the response to a request may be sent in chunks to a plain socket."""
    return (
        scope["http_version"] == "1.1"
        and scope["scheme"] == "http"
        and scope["method"] in {"GET", "POST"}
    )
