"""Headers that all responses carry, streams and errors included: security, CORS."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import frozen

RawHeaders = list[tuple[bytes, bytes]]

SECURITY: RawHeaders = [
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
    (b"referrer-policy", b"no-referrer"),
    (b"strict-transport-security", b"max-age=31536000; includeSubDomains"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"x-xss-protection", b"0"),
]

STREAM_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}

METHODS = b"GET, POST, PATCH, DELETE, OPTIONS"
EXPOSED = (
    b"X-Hermes-Session-Id, X-Hermes-Session-Key, X-Hermes-Completed, X-Hermes-Partial, X-Hermes-Error, "
    b"X-Request-Id, Retry-After, Idempotency-Replayed"
)
# What browsers may send. SDKs in a browser add a changing set of X-Stainless headers, so whole families are allowed.
ALWAYS_ALLOWED = ("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "X-Request-Id")
_ALLOWED = re.compile(
    r"authorization|content-type|accept|idempotency-key|last-event-id|x-request-id"
    r"|x-hermes-[a-z-]+|x-stainless-[a-z-]+|openai-[a-z-]+",
    re.IGNORECASE,
)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:@/+=-]{1,128}")


def first_values(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Index raw headers by lower-case name; of repeated headers the first one counts."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in reversed(headers)}


def is_request_id(text: str) -> bool:
    """Whether a request id that a client sent can be used as it is."""
    return _REQUEST_ID.fullmatch(text) is not None


@frozen
class Cors:
    """Cross-origin rules. No origins: no CORS headers, and only same-origin pages may call."""

    origins: frozenset[str]

    def allows(self, origin: str, host: str) -> bool:
        """Whether a request may pass: without an origin, from the same origin, or from an allowed one."""
        if not origin:
            return True
        same = origin.isprintable() and origin.partition("://")[2] == host != ""
        return same or "*" in self.origins or origin in self.origins

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
