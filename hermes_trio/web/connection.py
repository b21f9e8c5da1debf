"""One HTTP request in Quart-Trio, with two repairs and a short cut.

The end of a response makes Hypercorn send ``http.disconnect``, and Quart-Trio answers by cancelling the very task that
is still closing or recycling the connection: sockets of ``Connection: close`` clients are then never closed. So the
disconnect is ignored once the last part of the body is on its way.

An answer that is there as a whole goes out as one part, and together with its head; Quart would send its end alone.

A slot that was reserved for a run which never began is given back here, whatever cut the request short.
"""

from __future__ import annotations

from typing import Any

import structlog
import trio
from quart.utils import encode_headers
from quart.wrappers import Request
from quart.wrappers.response import DataBody
from quart_trio.asgi import TrioASGIHTTPConnection

from hermes_trio.core.wire import BODY_FOLLOWS
from hermes_trio.web.stream_body import BodyCut, StreamBody
from hermes_trio.web.visit import visit_of

log = structlog.get_logger(__name__)


def _head(response: Any, body_follows: bool) -> dict[str, Any]:
    head = {"status": response.status_code, "headers": encode_headers(response.headers)}
    return {"type": "http.response.start", **head, BODY_FOLLOWS: body_follows}


async def _send_stream(send: Any, body: StreamBody) -> None:
    async with body as frames:
        async for data in frames:
            await send(_part(data, more=True))
    await send(_part(b"", more=False))


def _part(data: bytes, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


class Connection(TrioASGIHTTPConnection):
    """Handles one request in a nursery of its own: one task waits for the disconnect, one handles."""

    _is_finishing = False

    async def __call__(self, receive: Any, send: Any) -> None:
        """Handle the request."""

        async def send_noting_the_end(message: Any) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                self._is_finishing = True
            await send(message)

        try:
            await super().__call__(receive, send_noting_the_end)
        except* BodyCut:
            log.warning("gave up a reader that did not read")
        except* Exception:
            # The answer has begun, or it would be an envelope: the client sees that the body was cut.
            log.exception("a request failed while it was answered")
        finally:
            visit_of(self.scope).leave()  # type: ignore[arg-type]  # the scope is a dictionary

    async def _send_response(self, send: Any, response: Any) -> None:
        """Send an answer, one that is there as a whole in as few parts as there can be."""
        match response.response:
            case DataBody() as body:
                await send(_head(response, body_follows=True))
                await send(_part(body.data[body.begin : body.end], more=False))
            case StreamBody() as body:
                await send(_head(response, body.has_opening))
                await _send_stream(send, body)
            case _:
                await super()._send_response(send, response)

    async def handle_messages(  # type: ignore[override]  # as in the class below
        self, nursery: trio.Nursery, request: Request, receive: Any
    ) -> None:
        """Collect the body; cancel the request when the client leaves, unless it has all of its answer."""
        await super(TrioASGIHTTPConnection, self).handle_messages(request, receive)
        if not self._is_finishing:
            nursery.cancel_scope.cancel(reason="client_disconnected")
