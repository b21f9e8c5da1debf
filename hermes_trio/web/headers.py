"""Headers that every answer carries, streams and errors included."""

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
# What browsers may send. SDKs in a browser add a changing set of X-Stainless headers, so families count.
ALWAYS_ALLOWED = ("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "X-Request-Id")
_ALLOWED = re.compile(
    r"authorization|content-type|accept|idempotency-key|last-event-id|x-request-id"
    r"|x-hermes-[a-z-]+|x-stainless-[a-z-]+|openai-[a-z-]+",
    re.IGNORECASE,
)
# What the usual clients send with every request.
_USUAL = (
    "accept", "accept-encoding", "accept-language", "authorization", "connection", "content-length",
    "content-type", "cookie", "host", "idempotency-key", "origin", "referer", "user-agent", "x-forwarded-for",
    "x-forwarded-host", "x-forwarded-proto", "x-hermes-session-id", "x-hermes-session-key", "x-real-ip",
    "x-request-id", "x-stainless-arch", "x-stainless-async", "x-stainless-lang", "x-stainless-os",
    "x-stainless-package-version", "x-stainless-read-timeout", "x-stainless-retry-count",
    "x-stainless-runtime", "x-stainless-runtime-version",
)  # fmt: skip
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:@/+=-]{1,128}")


class _Names(dict[bytes, str]):
    """Names of headers as texts in lower case: those that most requests have are known, and the others not kept."""

    def __missing__(self, name: bytes) -> str:
        return name.decode("latin-1").lower()


_NAMES = _Names({name.encode("ascii"): name for name in _USUAL})


def by_name(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers of a request by their names in lower case; of those that are repeated, the first."""
    return {_NAMES[name]: value.decode("latin-1") for name, value in reversed(headers)}


def is_request_id(text: str) -> bool:
    """Whether a client's request id may be taken over."""
    return _REQUEST_ID.fullmatch(text) is not None


@frozen
class Cors:
    """Which web pages may talk to us."""

    origins: frozenset[str]

    def allows(self, origin: str, host: str) -> bool:
        """Whether a request may pass: it is no browser's, or its page is ours or allowed."""
        if not origin:
            return True
        same = origin.isprintable() and origin.partition("://")[2] == host != ""
        return same or "*" in self.origins or origin in self.origins

    def headers(self, origin: str) -> RawHeaders:
        """For an answer to an allowed origin."""
        if not origin or not self.origins:
            return []
        shown = b"*" if "*" in self.origins else origin.encode("latin-1")
        return [
            (b"access-control-allow-origin", shown),
            (b"access-control-expose-headers", EXPOSED),
            (b"vary", b"Origin"),
        ]

    def preflight(self, origin: str, asked: str) -> RawHeaders:
        """For the question that a browser asks before the request."""
        if not self.origins:
            return []
        wanted = [name.strip() for name in asked.split(",")]
        extra = [name for name in wanted if _ALLOWED.fullmatch(name)]
        names = dict.fromkeys([*ALWAYS_ALLOWED, *extra])
        return [
            *self.headers(origin),
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", ", ".join(names).encode("latin-1")),
            (b"access-control-max-age", b"600"),
        ]
