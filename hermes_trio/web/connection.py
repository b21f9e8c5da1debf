"""One HTTP request in Quart-Trio, with two repairs and two short cuts.

The end of a response makes Hypercorn send ``http.disconnect``, and Quart-Trio answers by cancelling the very task that
is still closing or recycling the connection: sockets of ``Connection: close`` clients are then never closed. So the
disconnect is ignored once the last part of the body is on its way.

A request that is there as a whole is handled in the task that the server gave it: its mailbox tells when the client
leaves. Others have Quart-Trio's nursery with one task that collects and waits, and one that handles.

An answer that is there as a whole goes out as one part, and together with its head; Quart would send its end alone.
The parts of a stream, which are many, go straight to the connection if that offers it.

A slot that was reserved for a run which never began is given back here, whatever cut the request short.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

import structlog
import trio
from quart.utils import encode_headers
from quart.wrappers import Request
from quart.wrappers.response import DataBody
from quart_trio.asgi import TrioASGIHTTPConnection

from hermes_trio.core.wire import BODY_FOLLOWS
from hermes_trio.mailbox import BRIEFLY, Mailbox
from hermes_trio.mailbox import KEY as MAILBOX
from hermes_trio.web.ready import Ready
from hermes_trio.web.sse import StreamBody, StreamTruncated
from hermes_trio.web.visit import visit_of
from hermes_trio.web.whole import WholeRequest

_TOLD = (b"user-agent", b"referer")

log = structlog.get_logger(__name__)


def _head(response: Any, body_follows: bool) -> dict[str, Any]:
    headers = response.raw_headers() if isinstance(response, Ready) else encode_headers(response.headers)
    return {
        "type": "http.response.start",
        "status": response.status_code,
        "headers": headers,
        BODY_FOLLOWS: body_follows,
    }


def _forget_headers(scope: Any) -> None:
    """The request is answered. What an access log may tell of it at the end is kept."""
    visit_of(scope).headers = {}
    scope["headers"] = [header for header in scope["headers"] if header[0] in _TOLD]


def _sender_of_parts(send: Any) -> Any:
    async def send_part(data: bytes) -> None:
        await send(_part(data, more=True))

    return send_part


def _part(data: bytes, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def _follows(mailbox: Mailbox) -> bool:
    """Whether a request is there as a whole in a moment."""
    with trio.move_on_after(BRIEFLY):
        await mailbox.settled()
    return mailbox.has_all


class Connection(TrioASGIHTTPConnection):
    """Handles one request."""

    _is_finishing = False

    async def __call__(self, receive: Any, send: Any) -> None:
        """Handle the request."""

        async def send_noting_the_end(message: Any) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                self._is_finishing = True
            await send(message)

        try:
            mailbox: Any = self.scope.get(MAILBOX)
            # What is mounted below a path of another server's is for Quart to take apart.
            is_ours = mailbox is not None and not self.scope["root_path"]
            if is_ours and (mailbox.has_all or await _follows(mailbox)):
                await self._handle_whole(mailbox, send_noting_the_end)
            else:
                await super().__call__(receive, send_noting_the_end)
        except* StreamTruncated:
            log.warning("gave up a reader that did not read")
        except* Exception:
            # The answer has begun, or it would be an envelope: the client sees that the body was cut.
            log.exception("a request failed while it was answered")
        finally:
            visit_of(self.scope).leave()  # type: ignore[arg-type]  # the scope is a dictionary

    async def _handle_whole(self, mailbox: Mailbox, send: Any) -> None:
        async with trio.open_nursery() as nursery:
            self._begin(nursery)
            mailbox.when_gone = partial(self._client_left, nursery.cancel_scope)
            try:
                await self._send_response(send, await self._answer(mailbox.take_all()))
            finally:
                mailbox.when_gone = None

    def _begin(self, nursery: trio.Nursery) -> None:
        visit_of(self.scope).begin(nursery)  # type: ignore[arg-type]  # the scope is a dictionary

    def _answer(self, body: bytes) -> Coroutine[Any, Any, Any]:
        """What answers a request. A function of its own, so that nothing of it is kept for as long as a stream lasts."""
        known: Any = self.scope
        return self.app.handle_request(WholeRequest(known, body, self.app.config["MAX_CONTENT_LENGTH"]))

    async def _send_response(self, send: Any, response: Any) -> None:
        """Send an answer, one that is there as a whole in as few parts as there can be."""
        body = response.response
        if isinstance(body, StreamBody):
            await super()._send_response(send, response)
        elif isinstance(body, DataBody):
            await send(_head(response, body_follows=True))
            await send(_part(body.data[body.begin : body.end], more=False))
        else:
            await super()._send_response(send, response)

    async def handle_request(  # type: ignore[override]  # as in the class above
        self, nursery: trio.Nursery, request: Request, send: Any
    ) -> None:
        """Answer, in the nursery that Quart-Trio has opened."""
        self._begin(nursery)
        await super().handle_request(nursery, request, send)

    async def handle_messages(  # type: ignore[override]  # as in the class below
        self, nursery: trio.Nursery, request: Request, receive: Any
    ) -> None:
        """Collect the body; cancel the request when the client leaves, unless it has all of its answer."""
        await super(TrioASGIHTTPConnection, self).handle_messages(request, receive)
        self._client_left(nursery.cancel_scope)

    def _client_left(self, scope: trio.CancelScope) -> None:
        if not self._is_finishing:
            scope.cancel(reason="client_disconnected")
