"""Plain requests in HTTP/1.1, and the framing of their answers.

Nearly every request is plain: a known method, one line for each header, a body of a length that is told before it. One pattern reads
such a head, where h11 checks each line several times over and keeps account of both sides. Whatever is not plain beyond doubt
(chunks, upgrades, expectations, repeated headers, old versions, anything malformed) is none of our business here: h11 takes it, and
says what is wrong with it. So this must never accept what h11 would refuse, or read it differently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus

import h11
from attrs import define, frozen

RawHeaders = list[tuple[bytes, bytes]]

_TOKEN = rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+"
_HEAD = re.compile(
    rb"(GET|POST|PUT|PATCH|DELETE|OPTIONS) ([!-~]+) HTTP/1\.1\r\n"
    rb"((?:" + _TOKEN + rb":[\t -~\x80-\xff]*\r\n)+)\r\n"
)
_FIELD = re.compile(rb"([^:]+):([^\r]*)\r\n")
_LINES = re.compile(rb"(?:" + _TOKEN + rb": [^\0\r\n]*\r\n)*")
_FRAMES = re.compile(
    rb"^(connection|content-length|transfer-encoding): ([^\r]*)\r\n", re.IGNORECASE | re.MULTILINE
)
_LENGTH = re.compile(rb"[0-9]{1,18}")
_NOT_PLAIN = frozenset({b"transfer-encoding", b"upgrade", b"expect", b"http2-settings"})
_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}
_FIRST_FINAL = HTTPStatus.OK.value
_WITHOUT_BODY = frozenset({204, 304})
_CHUNKED = b"transfer-encoding: chunked\r\n"
_CLOSE = b"connection: close\r\n"


@frozen
class Head:
    """Of a plain request."""

    method: str
    target: bytes
    headers: RawHeaders
    length: int  # of the body
    closes: bool  # the client wants the connection to end with this request
    size: int  # its own, on the wire

    @property
    def whole(self) -> int:
        """The size of the request."""
        return self.size + self.length


def read_head(data: bytes) -> Head | None:
    """The head that some data begins with, if it is all there and plain."""
    found = _HEAD.match(data)
    if found is None:
        return None
    headers = [(name.lower(), value.strip(b" \t")) for name, value in _FIELD.findall(found[3])]
    names = dict(headers)
    length = names.get(b"content-length", b"0")
    is_plain = len(names) == len(headers) and b"host" in names and _NOT_PLAIN.isdisjoint(names)
    if not (is_plain and _LENGTH.fullmatch(length)):
        return None
    closes = b"close" in names.get(b"connection", b"").lower()
    return Head(found[1].decode(), found[2], headers, int(length), closes, found.end())


@define
class PlainExchange:
    """One plain request and its answer, as far as they have come."""

    missing: int  # of the body of the request
    closes: bool
    is_begun: bool = False  # its answer
    is_answered: bool = False
    _is_chunked: bool = False
    _has_body: bool = True  # statuses that have none, have none whatever the application says
    _due: int = 0  # what the head of the answer promises and was not given yet

    @property
    def can_go_on(self) -> bool:
        """Whether another request may follow on the same connection."""
        return self.is_answered and not self.missing and not self.closes

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """Part data into what belongs to the body and what follows it."""
        body, rest = data[: self.missing], data[self.missing :]
        self.missing -= len(body)
        return body, rest

    def head(self, status: int, headers: RawHeaders) -> bytes:
        """The head of the answer on the wire.

        Raises:
            h11.LocalProtocolError: what the application says is no head.
        """
        lines = [b"%s: %s\r\n" % header for header in headers]
        text = b"".join(lines)
        is_good = text.count(b"\n") == len(lines) and _LINES.fullmatch(text)  # each of them is one line
        if status < _FIRST_FINAL or not is_good:
            raise h11.LocalProtocolError("this is no head of an answer")
        framing = self._framing(status, {name.lower(): value for name, value in _FRAMES.findall(text)})
        self.is_begun = True
        return b"HTTP/1.1 %d %s\r\n%s%s\r\n" % (status, _REASONS.get(status, b""), text, framing)

    def _framing(self, status: int, names: Mapping[bytes, bytes]) -> bytes:
        """The lines that say where the body ends, and what becomes of the connection."""
        if b"transfer-encoding" in names:
            raise h11.LocalProtocolError("how the answer is framed is not the business of the application")
        says_close = b"close" in names.get(b"connection", b"").lower()
        self.closes |= says_close
        self._has_body = status not in _WITHOUT_BODY
        self._due = int(names.get(b"content-length", b"0")) if self._has_body else 0
        self._is_chunked = b"content-length" not in names and self._has_body
        return _CHUNKED * self._is_chunked + _CLOSE * (self.closes and not says_close)

    def part(self, data: bytes) -> bytes:
        """A part of the answer on the wire.

        Raises:
            h11.LocalProtocolError: it is more than the head has promised.
        """
        if self._is_chunked:
            return b"%x\r\n%s\r\n" % (len(data), data) if data else b""
        if not self._has_body:
            return b""
        self._due -= len(data)
        if self._due < 0:
            raise h11.LocalProtocolError("this is more than the head of the answer has promised")
        return data

    def end(self) -> bytes:
        """The end of the answer on the wire.

        Raises:
            h11.LocalProtocolError: it is less than the head has promised.
        """
        if self._due:
            raise h11.LocalProtocolError("this is less than the head of the answer has promised")
        self.is_answered = True
        return b"0\r\n\r\n" if self._is_chunked else b""
