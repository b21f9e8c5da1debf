"""The minimum of HTTP/1.1 that reads the responses of all contenders. No I/O."""

from __future__ import annotations

from attrs import define

from benchmarks.client.orders import Request

HEAD_END = b"\r\n\r\n"
UNKNOWN = -1


def request_bytes(request: Request, host: str) -> bytes:
    """Return a request in its wire form."""
    body = request.body.encode()
    headers = {"host": host, **request.headers}
    if body:
        headers |= {"content-type": "application/json", "content-length": str(len(body))}
    lines = [
        f"{request.method} {request.path} HTTP/1.1",
        *(f"{k}: {v}" for k, v in headers.items()),
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + body


@define
class Http1Reader:
    """Reads one response after the other."""

    status: int = 0
    is_over: bool = False
    _data: bytes = b""
    _in_body: bool = False
    _left: int = UNKNOWN  # of the chunk, or of the whole body; the line break after a chunk counts
    _is_chunked: bool = False

    def restart(self) -> None:
        """Begin the next response."""
        self.status, self.is_over, self._in_body = 0, False, False

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the connection; return the bytes of the body."""
        self._data = self._data + data if self._data else data
        if not self._in_body and not self._read_head():
            return b""
        return self._read_chunks() if self._is_chunked else self._read_plain()

    def _read_head(self) -> bool:
        head, found, rest = self._data.partition(HEAD_END)
        if not found:
            return False
        lowered = head.lower()
        self.status = int(head.split(b" ", 2)[1])
        self._is_chunked = b"transfer-encoding: chunked" in lowered
        self._left = 0 if self._is_chunked else _length(lowered)
        self._data, self._in_body = rest, True
        return True

    def _read_plain(self) -> bytes:
        body, self._data = self._data[: self._left], self._data[self._left :]
        self._left -= len(body)
        self.is_over = self._left == 0
        return body

    def _read_chunks(self) -> bytes:
        pieces: list[bytes] = []
        data, position = self._data, 0
        while not self.is_over:
            line_end = data.find(b"\r\n", position)
            if line_end < 0:
                break
            size = int(data[position:line_end], 16)
            start, end = line_end + 2, line_end + 2 + size
            if len(data) < end + 2:
                break
            pieces.append(data[start:end])
            position, self.is_over = end + 2, size == 0
        self._data = data[position:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _length(lowered_head: bytes) -> int:
    _, _, rest = lowered_head.partition(b"content-length:")
    return int(rest.split(b"\r\n", 1)[0] or b"0")
