"""The minimum of HTTP/2 that reads the responses of this server.

No priorities, no compression of headers, windows that never fill.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from attrs import define, frozen

from benchmarks.client.orders import Request

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
PADDED = 8
INITIAL_WINDOW = 4
LARGEST = 2**31 - 1
HEADER_SIZE = 9
STATUS_200 = 0x88  # the whole field ":status: 200" in HPACK's static table


@frozen
class Frame:
    """One frame."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def ends_stream(self) -> bool:
        """Whether the frame is the last one of its stream."""
        return self.kind in (DATA, HEADERS) and bool(self.flags & END_STREAM)


def frame_bytes(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame in its wire form."""
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes((kind, flags))
        + struct.pack(">I", stream)
        + payload
    )


def opening() -> bytes:
    """Return the client's preface, with windows as large as possible."""
    settings = struct.pack(">HI", INITIAL_WINDOW, LARGEST)
    window = struct.pack(">I", LARGEST - 65_535)
    return (
        PREFACE + frame_bytes(SETTINGS, 0, 0, settings) + frame_bytes(WINDOW_UPDATE, 0, 0, window)
    )


def request_bytes(request: Request, host: str, stream: int) -> bytes:
    """Return a request in its wire form."""
    body = request.body.encode()
    fields = {
        ":method": request.method,
        ":scheme": "http",
        ":path": request.path,
        ":authority": host,
        **{name.lower(): value for name, value in request.headers.items()},
    }
    if body:
        fields |= {"content-type": "application/json", "content-length": str(len(body))}
    block = b"".join(_literal(name, value) for name, value in fields.items())
    flags = END_HEADERS | (0 if body else END_STREAM)
    head = frame_bytes(HEADERS, flags, stream, block)
    return head + frame_bytes(DATA, END_STREAM, stream, body) if body else head


def _literal(name: str, value: str) -> bytes:
    """Return a field as plain text that is not indexed."""
    return b"\x00" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    data = text.encode()
    assert len(data) < 127, "longer texts need a longer length"
    return bytes((len(data),)) + data


@define
class Http2Reader:
    """Cuts the bytes of a connection into frames."""

    _data: bytes = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take bytes; return the complete frames."""
        data = self._data + data if self._data else data
        position = 0
        while len(data) - position >= HEADER_SIZE:
            size = int.from_bytes(data[position : position + 3], "big")
            end = position + HEADER_SIZE + size
            if len(data) < end:
                break
            kind, flags = data[position + 3], data[position + 4]
            stream = int.from_bytes(data[position + 5 : position + 9], "big") & LARGEST
            yield Frame(kind, flags, stream, data[position + HEADER_SIZE : end])
            position = end
        self._data = data[position:]


def answer_to(frame: Frame) -> bytes:
    """Return what has to be sent in reply to a frame."""
    if frame.kind in (SETTINGS, PING) and not frame.flags & ACK:
        return frame_bytes(frame.kind, ACK, 0, frame.payload if frame.kind == PING else b"")
    return b""


def status_of(frame: Frame) -> int:
    """Return the status in a header block: 200, or 0 for any other, which counts as a failure."""
    return 200 if STATUS_200 in frame.payload[:6] else 0
