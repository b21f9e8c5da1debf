"""The ASGI middleware around the application, for everything that applies to every request and response.

Quart's hooks see only requests that reach dispatch and know nothing of how a response ends. So the
request id, security and CORS headers, refusals of malformed requests, the profile prefix, the
access log and the release of a request's resources live here, outside Quart.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Any

import structlog
import trio
from attrs import define, field, frozen
from opentelemetry.trace import Span
from quart import wrappers

from hermes_trio.core.dialects.wire import encode
from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.records import NOTHING
from hermes_trio.core.redact import header_safe
from hermes_trio.keys import is_loopback
from hermes_trio.runs.delivery import EXTENSION
from hermes_trio.tracing import end_request, request_span, trace_id
from hermes_trio.web.request import CURRENT, RequestContext, Upload, is_same_origin
from hermes_trio.web.sse import StreamTruncated

RawHeaders = list[tuple[bytes, bytes]]
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]

log = structlog.get_logger(__name__)

# Raised by Quart 0.23 when it sends to a client that has left; Quart-Trio 0.13 lets it reach the
# server.
_DISCONNECTED: tuple[type[Exception], ...] = tuple(
    error for error in (getattr(wrappers, "ClientDisconnectedError", None),) if error is not None
)
_MAX_LENGTH_DIGITS = 20
_ABSOLUTE_FORM = re.compile(r"https?://(?P<authority>[^/]*)", re.IGNORECASE)
_HOST = re.compile(r"(?P<name>\[[^\]]*\]|[^:\[\]]+)(:[0-9]*)?")
_PROFILE_PREFIX = re.compile(r"/p/(?P<name>[^/]+)(?=/|$)")
_LINE_END = re.compile(rb"[\r\n\0]")


SECURITY: RawHeaders = [
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
    (b"referrer-policy", b"no-referrer"),
    (b"strict-transport-security", b"max-age=31536000; includeSubDomains"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"x-xss-protection", b"0"),
]

METHODS = b"GET, POST, PATCH, DELETE, OPTIONS"
EXPOSED = (
    b"X-Hermes-Session-Id, X-Hermes-Session-Key, X-Hermes-Completed, X-Hermes-Partial, X-Hermes-Error, "
    b"X-Request-Id, Retry-After, Idempotency-Replayed, X-Ratelimit-Limit-Requests, "
    b"X-Ratelimit-Remaining-Requests, X-Ratelimit-Reset-Requests, X-Hermes-Store-Fallback"
)
# What browsers may send. SDKs in a browser add a changing set of X-Stainless headers, so whole
# families are allowed.
ALWAYS_ALLOWED = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "Last-Event-ID",
    "X-Request-Id",
)
_ALLOWED = re.compile(
    r"authorization|content-type|accept|idempotency-key|last-event-id|x-request-id"
    r"|x-hermes-[a-z-]+|x-stainless-[a-z-]+|openai-[a-z-]+",
    re.IGNORECASE,
)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:@/+=-]{1,128}")


@frozen
class _Reply:
    """A response that needs no application."""

    status: int
    headers: RawHeaders
    body: bytes = b""


@define(eq=False)
class _Exchange:
    """The ``receive`` and ``send`` of one request, and what they have seen."""

    _receive: Receive
    _send: Send
    _write_through: Any = None  # the server's extension, if it offers it
    upload: Upload = field(factory=Upload)
    default_headers: RawHeaders = field(factory=list)  # added to the response unless it has them
    status: int | None = None  # None until the response starts
    body_bytes: int = 0
    is_finishing: bool = False  # the last message of the response is being sent, or has been

    async def receive(self) -> Message:
        """Receive a message; never the disconnect that follows the end of the response.

        Hypercorn reports ``http.disconnect`` at the end of every response, while its last ``send``
        still runs, and Quart-Trio then cancels the task in that ``send``. Hypercorn would never
        close the connection of a client that sent ``Connection: close``. Quart-Trio cancels this
        task itself as soon as the response is done.
        """
        message: Message = await self._receive()
        if message["type"] == "http.request":
            return await self.upload.receive(message)
        if self.is_finishing and message["type"] == "http.disconnect":
            await trio.sleep_forever()
        return message

    async def send(self, message: Message) -> None:
        """Send a message of the response."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.upload.response_started()
            present = {name for name, _ in message["headers"]}
            added = [(name, value) for name, value in self.default_headers if name not in present]
            message = {**message, "headers": [*message["headers"], *added]}
            self.default_headers = []  # a stream may last for long
        elif message["type"] == "http.response.body":
            self.body_bytes += len(message.get("body", b""))
            self.is_finishing = not message.get("more_body", False)
        await self._send(message)

    @property
    def can_write_through(self) -> bool:
        """Whether the server offers to send a part of the body without a task switch."""
        return self._write_through is not None

    def try_send(self, data: bytes) -> bool:
        """Write a part of the body through.

        See :class:`hermes_trio.runs.delivery.Delivery` for the contract.
        """
        is_sent: bool = self._write_through.try_send(data)
        if is_sent:
            self.body_bytes += len(data)
        return is_sent

    async def respond(self, reply: _Reply) -> None:
        """Send a whole response."""
        content_type = [(b"content-type", b"application/json")] if reply.body else []
        length = [(b"content-length", str(len(reply.body)).encode("ascii"))]
        headers = [*reply.headers, *content_type, *length]
        await self.send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": reply.body, "more_body": False})


@frozen
class Cors:
    """Cross-origin rules. No origins: no CORS headers, and only same-origin pages may call."""

    origins: frozenset[str]

    def allows(self, origin: str, host: str) -> bool:
        """Return whether a request may pass.

        Without an origin, from the same origin, or from an allowed one.
        """
        if not origin:
            return True
        return is_same_origin(origin, host) or "*" in self.origins or origin in self.origins

    def headers(self, origin: str) -> RawHeaders:
        """Return the headers of a response to an allowed origin."""
        if not origin or not self.origins:
            return []
        shown = b"*" if "*" in self.origins else origin.encode("latin-1")
        return [
            (b"access-control-allow-origin", shown),
            (b"access-control-expose-headers", EXPOSED),
            (b"vary", b"Origin"),
        ]

    def preflight(self, origin: str, requested: str) -> RawHeaders:
        """Return the headers that answer a preflight request for some request headers."""
        if not self.origins:
            return []
        extra = [name.strip() for name in requested.split(",") if _ALLOWED.fullmatch(name.strip())]
        names = dict.fromkeys([*ALWAYS_ALLOWED, *extra])
        return [
            *self.headers(origin),
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", ", ".join(names).encode("latin-1")),
            (b"access-control-max-age", b"600"),
        ]


@frozen
class AllowedHosts:
    """The host names under which the server may be addressed: its defence against DNS rebinding.

    A page of another site can make a name of that site resolve to 127.0.0.1. Browsers then treat the
    server as part of the site, but still send its name as ``Host``.
    """

    names: tuple[str, ...] = ()  # "*" for all, "*.NAME" for those below NAME; () for the default
    own_names: tuple[str, ...] = ()  # of this machine, in addition to localhost

    def allows(self, host: str, server: Sequence[Any] | None) -> bool:
        """Return whether a ``Host`` header is acceptable on a connection to a server's address.

        An address that is not known, as that of a Unix socket, is not loopback. Browsers always
        send the header, so a request without it passes.
        """
        return _allows(self, host, str(server[0]) if server else "")


@lru_cache(maxsize=64)
def _allows(allowed: AllowedHosts, host: str, server: str) -> bool:
    """Decide once for each host: nearly all requests have the same one."""
    name, address = normalize_host(host), normalize_host(server)
    if not host or name == address:
        return True
    if is_loopback(address):
        if _is_local_name(name) or name in map(normalize_host, allowed.own_names):
            return True
    elif not allowed.names:
        return True
    return any(_matches(name, each) for each in allowed.names)


@frozen
class BoundaryMiddleware:
    """Wraps ``app.asgi_app``. WebSockets are refused, lifespan messages pass through."""

    app: AsgiApp
    cors: Cors
    max_body_bytes: int
    access_log: bool = True
    write_through: bool = True
    hosts: AllowedHosts = field(factory=AllowedHosts)
    extensions: Mapping[str, Any] = NOTHING  # of the application
    root_path: str = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one connection scope."""
        if scope["type"] == "http":
            await self._handle(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})
        else:
            await self.app(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _Exchange(receive, send, scope.get("extensions", {}).get(EXTENSION))
        _reduce_target(scope)
        headers = _first_values(scope["headers"])
        context, reply = self._prepare(scope, headers, exchange)
        # Reset afterwards: a server may handle the next request of a connection in the same task.
        token = CURRENT.set(context)
        with (
            request_span(scope["method"], scope["path"], headers) as span,
            structlog.contextvars.bound_contextvars(**_log_context(context, span)),
        ):
            try:
                if reply is not None:
                    await exchange.respond(reply)
                else:
                    await self.app(scope, exchange.receive, exchange.send)
            except* _DISCONNECTED:
                pass  # the client is gone; the run has been told in another way
            except* StreamTruncated:
                # Returning without the last body message makes the server break the transfer off,
                # so that the client does not take the part it has for the whole.
                log.warning("a stream was cut off before the end of its run")
            except* Exception:
                if exchange.status is None:
                    raise
                log.exception("a request failed after its response had started")
            finally:
                CURRENT.reset(token)
                context.close()
                principal = context.principal.name
                end_request(span, scope["method"], context.route, exchange.status, principal)
                if self.access_log:
                    log.info(
                        "request",
                        method=scope["method"],
                        route=context.route,
                        status=exchange.status,
                        duration=round(trio.current_time() - context.started_at, 6),
                        bytes=exchange.body_bytes,
                        complete=exchange.is_finishing,
                        principal=principal,
                        **(
                            {"records_of": header_safe(other)}
                            if (other := context.other_principal)
                            else {}
                        ),
                    )
        await context.upload.return_memory()

    def _prepare(
        self, scope: Scope, headers: Mapping[str, str], exchange: _Exchange
    ) -> tuple[RequestContext, _Reply | None]:
        """Return the context of a request, and the reply if it does not reach the application."""
        context = RequestContext(_request_id(headers), headers, self.extensions)
        if exchange.can_write_through and self.write_through:
            context.try_send = exchange.try_send
        exchange.default_headers = [
            *SECURITY,
            (b"x-request-id", context.request_id.encode("ascii")),
        ]
        origin = headers.get("origin", "")
        try:
            self._check_host(headers.get("host", ""), scope.get("server"))
            if not self.cors.allows(origin, headers.get("host", "")):
                raise ApiError(403, "This origin is not allowed.", code="origin_not_allowed")
            exchange.default_headers += self.cors.headers(origin)
            _check_request(scope, headers, self.max_body_bytes)
            length = headers.get("content-length", "")
            upload = Upload(int(length) if length else None, self.max_body_bytes)
            exchange.upload = context.upload = upload
        except ApiError as error:
            shown = [(name.encode(), value.encode()) for name, value in error.headers.items()]
            return context, _Reply(error.status, shown, encode(error.envelope()).encode("ascii"))
        if self.root_path and not _strip_root(scope, self.root_path):
            return context, _Reply(308, [(b"location", f"{self.root_path}/".encode("ascii"))])
        if scope["method"] == "OPTIONS":
            requested = headers.get("access-control-request-headers", "")
            return context, _Reply(200, self.cors.preflight(origin, requested))
        context.profile, scope["path"] = _split_profile(scope["path"], scope.get("root_path", ""))
        return context, None

    def _check_host(self, host: str, server: Sequence[Any] | None) -> None:
        """Refuse a request for another host, or for none that can exist.

        Raises:
            ApiError: 421, which RFC 9110 has for requests that reached the wrong server. Unlike
                the 400 of other middlewares, it cannot be mistaken for a fault in the request.
                400 for a fault in the host.
        """
        if self.hosts.allows(host, server):
            if not _can_exist(host):  # Werkzeug would raise outside of the application's handlers
                raise ApiError(
                    400, "The Host header is not a host name.", param="Host", code="invalid_host"
                )
            return
        log.warning("refused a host", host=header_safe(host), setting="allowed_hosts")
        message = (
            "The Host header names a host that this server does not serve at this address. If it "
            "is a name of the server or of a proxy in front of it, add it to the setting "
            "allowed_hosts."
        )
        raise ApiError(421, message, param="Host", code="host_not_allowed")


def _log_context(context: RequestContext, span: Span) -> dict[str, str]:
    """Return what every log line of a request has."""
    ids = {"request_id": context.request_id}
    return {**ids, "trace_id": found} if (found := trace_id(span)) else ids


def normalize_host(host: str) -> str:
    """Return the name or address in a ``Host`` header: without port, brackets and final dot, in lower case."""
    found = _HOST.fullmatch(host)
    name = (found["name"].strip("[]") if found else host).removesuffix(".").lower()
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    return str(getattr(address, "ipv4_mapped", None) or address)


@lru_cache(maxsize=64)
def _can_exist(host: str) -> bool:
    """Return whether a ``Host`` header has the form of a host name, as Werkzeug requires it."""
    try:
        host.lower().encode("idna")
    except UnicodeError:
        return False
    return True


def _is_local_name(name: str) -> bool:
    """Return whether a name always means the machine it is used on (RFC 6761, section 6.3)."""
    return is_loopback(name) or name.endswith(".localhost")


def _matches(name: str, allowed: str) -> bool:
    if allowed.startswith("*"):
        return name.endswith(allowed[1:].lower())
    return name == normalize_host(allowed)


def _first_values(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Index raw headers by lower-case name; of repeated headers the first one counts.

    Werkzeug's class compares all names at each look, and raises an exception for a missing one.
    """
    return {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in reversed(headers)
    }


def _reduce_target(scope: Scope) -> None:
    """Replace a target in absolute form by its path, and the Host header by its authority.

    Clients send such targets to proxies, and servers must accept them (RFC 9112, section 3.2.2).
    """
    found = _ABSOLUTE_FORM.match(scope["path"])
    if found is None:
        return
    authority = found["authority"].encode("latin-1", "replace")
    others = [(name, value) for name, value in scope["headers"] if name.lower() != b"host"]
    scope["headers"] = [(b"host", authority), *others]
    scope["path"] = scope["path"][found.end() :] or "/"
    if "raw_path" in scope:
        scope["raw_path"] = b"/" + scope["raw_path"].partition(b"://")[2].partition(b"/")[2]


def _strip_root(scope: Scope, root_path: str) -> bool:
    """Take the path of the server off a path that begins with it; a proxy may have done so.

    Returns False if nothing is left, not even a slash: links of the page are relative to it.
    """
    if scope["path"] == root_path:
        return False
    if scope["path"].startswith(f"{root_path}/"):
        scope["path"] = scope["path"][len(root_path) :]
        if "raw_path" in scope:
            scope["raw_path"] = scope["raw_path"].removeprefix(root_path.encode("ascii"))
    return True


def _request_id(headers: Mapping[str, str]) -> str:
    """Return the id that the client gave to the request, or a new one if that cannot be used."""
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else f"req_{secrets.token_hex(16)}"


def _check_request(scope: Scope, headers: Mapping[str, str], max_body_bytes: int) -> None:
    """Refuse what Quart would answer with a 500, and what proxies might read differently than this server.

    Raises:
        ApiError: 400 or 413.
    """
    if not scope["path"].startswith("/"):
        raise bad_request("The request target must be a path.", code="invalid_path")
    for name, value in scope["headers"]:
        if _LINE_END.search(value):
            param = name.decode("latin-1").title()
            raise bad_request(
                f"Invalid {param}: line ends are not allowed.", param, "invalid_header"
            )
    length = headers.get("content-length", "")
    if length and headers.get("transfer-encoding", ""):
        # Where the body ends is in doubt, so whatever follows must not be taken for a request.
        raise ApiError(
            400,
            "Content-Length and Transfer-Encoding exclude each other.",
            code="invalid_framing",
            headers={"connection": "close"},
        )
    if length and not (length.isascii() and length.isdigit()):
        raise bad_request(
            "Content-Length must be a number.", "Content-Length", "invalid_content_length"
        )
    # Count the digits first: int() refuses texts of thousands of digits with a ValueError.
    if len(length) > _MAX_LENGTH_DIGITS or int(length or 0) > max_body_bytes:
        message = f"The request body may hold at most {max_body_bytes} bytes."
        raise ApiError(413, message, code="body_too_large")


def _split_profile(path: str, root_path: str) -> tuple[str, str]:
    """Take the profile prefix off a path, which follows the path that the application is mounted at, if any.

    Returns the profile, "" if there is none, and the path without it.
    """
    mount = len(root_path) if path.startswith(root_path) else 0
    prefix = _PROFILE_PREFIX.match(path, mount)
    return (prefix["name"], path[:mount] + (path[prefix.end() :] or "/")) if prefix else ("", path)
