"""A client with a socket of its own: it can leave in every possible way, or stay and stop reading."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
from attrs import define

from tests.support.server_process import TIMEOUT, ServerProcess

PATH = "/v1/chat/completions"


def chat_body(text: str, stream: bool = True) -> bytes:
    """Return the body of a request for one turn."""
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "hermes-agent", "stream": stream, "messages": messages}).encode()


def chat_headers(server: ServerProcess, session: str) -> dict[str, str]:
    """Return the headers of the request."""
    return {
        "Authorization": f"Bearer {server.key}",
        "Content-Type": "application/json",
        "X-Hermes-Session-Id": session,
    }


@define
class RawConnection:
    """An HTTP/1.1 connection, as bytes."""

    sock: socket.socket
    seen: bytes = b""

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.sock.sendall(data)

    def until(self, text: bytes) -> None:
        """Read until a text has arrived."""
        while text not in self.seen:
            data = self.sock.recv(65536)
            assert data, f"the connection ended before {text!r}: {self.seen[-2000:]!r}"
            self.seen += data

    def to_end(self) -> bytes:
        """Read until the server closes."""
        while data := self.sock.recv(65536):
            self.seen += data
        return self.seen

    def leave(self) -> float:
        """Close properly; return the time."""
        self.sock.close()
        return time.monotonic()

    def reset(self) -> float:
        """Close with a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return self.leave()

    def half_close(self) -> float:
        """Close the sending side only."""
        self.sock.shutdown(socket.SHUT_WR)
        return time.monotonic()


@contextmanager
def open_connection(server: ServerProcess, receive_buffer: int = 0) -> Iterator[RawConnection]:
    """A new connection."""
    with socket.socket() as sock:
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(TIMEOUT)
        sock.connect(("127.0.0.1", server.port))
        yield RawConnection(sock)


def chat_bytes(
    server: ServerProcess, session: str, text: str, stream: bool = True, close: bool = False
) -> bytes:
    """The same request as it stands on the wire."""
    body = chat_body(text, stream)
    headers = {
        **chat_headers(server, session),
        "Host": "localhost",
        "Content-Length": str(len(body)),
        "Connection": "close" if close else "keep-alive",
    }
    lines = [
        f"POST {PATH} HTTP/1.1",
        *(f"{name}: {value}" for name, value in headers.items()),
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + body


@define
class StreamReader:
    """A stream that is read frame by frame."""

    lines: Iterator[str]

    def until(self, text: str) -> None:
        """Read until a line with a text has come."""
        assert any(text in line for line in self.lines), f"the stream ended before {text!r}"

    def rest(self) -> list[str]:
        """The data of all frames that are still to come."""
        return list(data_of(self.lines))

    def last_chunk(self) -> dict[str, Any]:
        """Read to the end, which has to be a proper one; returns the last chunk before it."""
        *_, last, done = self.rest()
        assert done == "[DONE]"
        chunk: dict[str, Any] = json.loads(last)
        return chunk


def data_of(lines: Iterable[str]) -> Iterator[str]:
    """The data lines of a stream."""
    return (line.removeprefix("data: ") for line in lines if line.startswith("data: "))


@contextmanager
def open_chat_stream(
    server: ServerProcess, session: str, text: str, **client: Any
) -> Iterator[StreamReader]:
    """A chat stream."""
    options = {"verify": server.trust, "trust_env": False, "timeout": TIMEOUT, **client}
    with (
        httpx2.Client(**options) as http,
        http.stream(
            "POST",
            server.url + PATH,
            content=chat_body(text),
            headers=chat_headers(server, session),
        ) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        yield StreamReader(answer.iter_lines())
