"""Hypercorn's HTTP/1.1 without upgrades, which also notices clients that leave."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakMethod

import h11
import trio
from hypercorn.events import Closed, Event
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.events import StreamClosed
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.worker_context import EventWrapper

from hermes_trio.core.errors import ApiError
from hermes_trio.server.guards.middleware import GuardedApp
from hermes_trio.server.guards.stream import GuardedStream

FINISH_SECONDS = 5.0
"""The bound on what follows the end of a response, which is done in spite of cancellation."""

_NO_UPGRADE = ApiError(
    426,
    "This server does not offer WebSockets: send the request without an upgrade.",
    code="no_upgrade",
)


def finishing() -> trio.CancelScope:
    """A bounded shield around the end of a stream.

    Defect: The end of a response makes Hypercorn report a disconnect to the application. One that
    cancels itself then, as Quart-Trio does, cancels the very call that recycles or closes the
    connection, which then neither times out nor closes (no issue known). Delete when: Hypercorn
    recycles the connection outside of the application's task.
    """
    return trio.CancelScope(shield=True, relative_deadline=FINISH_SECONDS)


class ReadGate(EventWrapper):
    """`H11Protocol.can_read`, which also watches the client while the protocol waits.

    Defect: h11 hands out no request before the last one is answered, and Hypercorn's reader waits
    until then: a client that sent more than one request, or proposed an upgrade, is not seen to
    leave (cf. hypercorn #210). Delete when: `TCPServer` reads while the protocol is paused.
    """

    def __init__(self, stream: GuardedStream, handle: Callable[[Event], Awaitable[None]]) -> None:
        super().__init__()
        self._stream = stream
        self._handle = WeakMethod(handle)  # of the protocol that owns this gate

    async def wait(self) -> None:
        """Wait until the protocol may go on."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_client)
            await super().wait()
            nursery.cancel_scope.cancel()

    async def _watch_client(self) -> None:
        await self._stream.wait_client_gone()
        handle = self._handle()
        assert handle is not None
        await handle(Closed())


class LastRequestConnection(h11.Connection):
    """The h11 parser, which ignores what follows the last request of a connection.

    Defect: h11 reports it as an error, and Hypercorn then closes the connection in the middle of
    the answer (no issue known). Some clients send a line break behind a body. Delete when:
    Hypercorn reads nothing more once h11 is in the state `MUST_CLOSE`.
    """

    def receive_data(self, data: bytes) -> None:
        """Take input."""
        if self.their_state is not h11.MUST_CLOSE:
            super().receive_data(data)

    def next_event(self) -> Any:
        """Return the next event."""
        return h11.NEED_DATA if self.their_state is h11.MUST_CLOSE else super().next_event()


class GuardedH11Protocol(H11Protocol):
    """HTTP/1.1 without upgrades. A client that begins with the HTTP/2 preface is served."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        assert isinstance(self.app, GuardedApp)
        self.can_read = ReadGate(self.app.stream, self.handle)
        self.connection = LastRequestConnection(
            h11.SERVER, max_incomplete_event_size=self.config.h11_max_incomplete_size
        )

    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of a response.

        Its end is handled in spite of cancellation, see `finishing`.
        """
        if isinstance(event, StreamClosed):
            with finishing():
                await super().stream_send(event)
        else:
            await super().stream_send(event)
            if (
                self.stream is None
            ):  # the client is gone: a producer that ignores it must not block the event loop
                await trio.lowlevel.checkpoint()

    async def _check_protocol(self, event: h11.Request) -> None:
        """Recognise the HTTP/2 preface, and ignore `Upgrade: h2c`.

        Defect: The upgrade to HTTP/2 cannot be switched off and is a second entry into the same
        code (no issue known). Delete when: Hypercorn has a setting for it.
        """
        if event.method == b"PRI":
            await super()._check_protocol(event)

    async def _create_stream(self, request: h11.Request) -> None:
        """Start a request, and refuse a WebSocket.

        Defect: A byte behind the upgrade to a WebSocket ends the connection with an exception
        (hypercorn #225), and no setting turns WebSockets off. Delete when: this server offers
        WebSockets.
        """
        if _wants_websocket(request):
            await self._refuse_upgrade()
        else:
            await super()._create_stream(request)

    async def _refuse_upgrade(self) -> None:
        """Answer 426 and close: what follows an upgrade is not HTTP and must not be parsed as such.

        Clients that prefer WebSockets fall back to plain requests at a 426; a 400 they take for a
        fault of theirs.
        """
        body = json.dumps(_NO_UPGRADE.envelope()).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"upgrade", b"HTTP/1.1"),  # a 426 has to name what the client should speak instead
            (b"connection", b"upgrade, close"),
            *self.config.response_headers("h11"),
        ]
        for event in (
            h11.Response(status_code=_NO_UPGRADE.status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            await self._send_h11_event(event)
        await self.send(Closed())


def _wants_websocket(request: h11.Request) -> bool:
    return b"upgrade" in _tokens(request, b"connection") and b"websocket" in _tokens(
        request, b"upgrade"
    )


def _tokens(request: h11.Request, wanted: bytes) -> set[bytes]:
    """Return the comma-separated values of a header, in lower case."""
    values = (value for name, value in request.headers if name == wanted)
    return {token.strip() for value in values for token in value.lower().split(b",")}
