"""The ways out of HTTP/1.1: that to HTTP/2 is open, others are refused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import h11

from hermes_trio.core.errors import bad_request

Headers = Iterable[tuple[bytes, bytes]]

_NO_WEBSOCKET = bad_request(
    "This server does not offer WebSockets or other protocol upgrades.", code="no_upgrade"
)


class UpgradeRefused(Exception):
    """A client asked to leave HTTP."""


def tokens(headers: Headers, wanted: bytes) -> set[bytes]:
    """The comma-separated words of a header, in lower case."""
    values = (value for name, value in headers if name == wanted)
    return {token.strip() for value in values for token in value.lower().split(b",")}


def wants_websocket(headers: Headers) -> bool:
    """Whether a request asks for a WebSocket."""
    return b"upgrade" in tokens(headers, b"connection") and b"websocket" in tokens(headers, b"upgrade")


def is_preface(request: h11.Request) -> bool:
    """Whether a request is the first line of HTTP/2 with prior knowledge."""
    first = (request.method, request.target, request.http_version)
    return first == (b"PRI", b"*", b"2.0") and not list(request.headers)


def refusal(common: Headers) -> Iterator[h11.Event]:
    """The answer to whoever asks for another protocol; the headers of all answers are part of it."""
    text = json.dumps(_NO_WEBSOCKET.envelope()).encode()
    own = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(text)),
        (b"connection", b"close"),
    ]
    yield h11.Response(status_code=_NO_WEBSOCKET.status, headers=[*own, *common])
    yield h11.Data(data=text)
    yield h11.EndOfMessage()
