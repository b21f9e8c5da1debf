"""The outermost ASGI layer: what holds for every answer is done here, once.

Request ids, security headers and CORS are put on whatever starts an answer, so streams and errors cannot miss them.
Requests that the layers behind cannot take are refused here. The prefix of a profile is taken off, so that the layers
behind know one path for each route.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from attrs import frozen

from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.wire import encode
from hermes_trio.web.headers import SECURITY, Cors, RawHeaders, by_name, is_request_id
from hermes_trio.web.ids import random_hex
from hermes_trio.web.visit import KEY, Visit, visit_of

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]

_LENGTH_DIGITS = 20
_PROFILE = re.compile(r"/p/(?P<name>[^/]+)(?=/|$)")
_LINE_ENDS = re.compile(rb"[\r\n\0]")


@frozen
class Gate:
    """Wraps the application."""

    app: AsgiApp
    cors: Cors
    max_body_bytes: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it."""
        if scope["type"] == "http":
            await self._pass(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})
        else:
            await self.app(scope, receive, send)

    def _pass(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """What answers the request. It is awaited by the caller: a layer more is one for every wait of a stream."""
        visit = scope[KEY] = _visit(by_name(scope["headers"]))
        origin = visit.headers.get("origin", "")
        allowed = not origin or self.cors.allows(origin, visit.headers.get("host", ""))
        send = _with_headers(send, self._common(visit.request_id, origin if allowed else ""))
        try:
            self._check(scope, visit.headers, allowed)
        except ApiError as error:
            return _answer(send, error.status, [], encode(error.envelope()).encode("ascii"))
        visit.profile, path = _split(scope["path"])
        return self._serve({**scope, "path": path} if visit.profile else scope, receive, send, origin)

    def _common(self, request_id: str, origin: str) -> RawHeaders:
        """What is on every answer, whatever it is; with nothing for an origin that is not allowed."""
        own = (b"x-request-id", request_id.encode("ascii"))
        return [*SECURITY, own, *self.cors.headers(origin)] if origin else [*SECURITY, own]

    def _serve(self, scope: Scope, receive: Receive, send: Send, origin: str) -> Awaitable[None]:
        if scope["method"] == "OPTIONS":
            asked = visit_of(scope).headers.get("access-control-request-headers", "")
            return _answer(send, 200, self.cors.preflight(origin, asked), b"")
        return self.app(scope, receive, send)

    def _check(self, scope: Scope, headers: Mapping[str, str], allowed: bool) -> None:
        if not allowed:
            raise ApiError(403, "This origin is not allowed.", code="origin_not_allowed")
        if not scope["path"].startswith("/"):
            raise bad_request("The request target must be a path.", code="invalid_path")
        if _LINE_ENDS.search(b" ".join([value for _, value in scope["headers"]])):
            raise _line_ends(scope["headers"])
        self._check_length(headers)

    def _check_length(self, headers: Mapping[str, str]) -> None:
        length = headers.get("content-length", "")
        if length and headers.get("transfer-encoding", ""):
            raise bad_request(
                "Content-Length and Transfer-Encoding exclude each other.", code="invalid_framing"
            )
        if length and not (length.isascii() and length.isdigit()):
            raise bad_request("Content-Length must be a number.", "Content-Length", "invalid_content_length")
        # The digits are counted first: Python refuses to read a number of thousands.
        if len(length) > _LENGTH_DIGITS or int(length or 0) > self.max_body_bytes:
            raise too_large(self.max_body_bytes)


def _line_ends(headers: RawHeaders) -> ApiError:
    """Names the first header that has some."""
    [name, *_] = [name for name, value in headers if _LINE_ENDS.search(value)]
    param = name.decode("latin-1").title()
    return bad_request(f"Invalid {param}: line ends are not allowed.", param, "invalid_header")


def too_large(limit: int) -> ApiError:
    """The body is over the limit."""
    return ApiError(413, f"The request body may hold at most {limit} bytes.", code="body_too_large")


def _split(path: str) -> tuple[str, str]:
    """The profile that a path begins with, "" if there is none, and the path without it."""
    prefixed = _PROFILE.match(path)
    return (prefixed["name"], path[prefixed.end() :] or "/") if prefixed else ("", path)


def _visit(headers: dict[str, str]) -> Visit:
    given = headers.get("x-request-id", "")
    is_good = given != "" and is_request_id(given)
    return Visit(given if is_good else f"req_{random_hex(16)}", headers)


def _with_headers(send: Send, common: RawHeaders) -> Send:
    async def send_with_headers(message: Message) -> None:
        nonlocal common
        if message["type"] == "http.response.start":
            present = dict(message["headers"])  # in lower case: they are ours
            added = [(name, value) for name, value in common if name not in present]
            message = {**message, "headers": [*message["headers"], *added]}
            common = []  # a stream may last for long
        await send(message)

    return send_with_headers


async def _answer(send: Send, status: int, headers: RawHeaders, body: bytes) -> None:
    kind = [(b"content-type", b"application/json")] if body else []
    length = [(b"content-length", str(len(body)).encode("ascii"))]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *kind, *length]})
    await send({"type": "http.response.body", "body": body, "more_body": False})
