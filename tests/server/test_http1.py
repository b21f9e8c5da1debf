"""HTTP/1.1: how requests and answers are framed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.apps import Receive, Send, body, lifespan, start
from tests.support.fakes import make_harness
from tests.support.in_process_server import serving
from tests.support.raw_http import ask, connect, get, read_to_end, read_until


class Plain:
    """Answers with two bytes, whose number it tells or not."""

    def __init__(self, *headers: tuple[bytes, bytes]) -> None:
        self._headers = headers

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        await start(send, 200, *self._headers)
        await body(send, b"ok")


LENGTH = (b"content-length", b"2")


@pytest.mark.parametrize(
    ("line", "headers", "framing", "end"),
    [
        ("GET / HTTP/1.1", (), {b"transfer-encoding: chunked"}, b"2\r\nok\r\n0\r\n\r\n"),
        ("GET / HTTP/1.1", (LENGTH,), {b"content-length: 2"}, b"\r\n\r\nok"),
        ("HEAD / HTTP/1.1", (), {b"transfer-encoding: chunked"}, b"\r\n\r\n"),
        ("HEAD / HTTP/1.1", (LENGTH,), {b"content-length: 2"}, b"\r\n\r\n"),
        ("GET / HTTP/1.0", (), set(), b"\r\n\r\nok"),
        ("GET / HTTP/1.0", (LENGTH,), {b"content-length: 2"}, b"\r\n\r\nok"),
        (
            "GET / HTTP/1.1",
            (LENGTH, (b"Connection", b"x-other")),
            {b"content-length: 2"},
            b"\r\n\r\nok",
        ),
    ],
)
async def test_every_answer_is_framed(
    line: str, headers: tuple[tuple[bytes, bytes], ...], framing: set[bytes], end: bytes
) -> None:
    """Also those whose heads are sent as they are, and all say that the connection ends, as the client wished."""
    async with serving(Plain(*headers)) as live, await connect(live.port) as stream:
        await stream.send_all(f"{line}\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = await read_to_end(stream)
    lines = {entry.lower() for entry in answer.partition(b"\r\n\r\n")[0].split(b"\r\n")}
    assert answer.endswith(end)
    assert {entry for entry in lines if entry.startswith((b"transfer", b"content-l"))} == framing
    assert any(entry.startswith(b"connection:") and b"close" in entry for entry in lines)


async def test_a_connection_goes_on_unless_the_client_wishes_otherwise() -> None:
    async with serving(Plain(LENGTH)) as live, await connect(live.port) as stream:
        for _ in range(3):
            await stream.send_all(get("/"))
            assert b"connection" not in (await read_until(stream, b"\r\n\r\nok")).lower()


SMUGGLED = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
)


async def test_nothing_behind_an_ambiguous_body_is_taken_for_a_request() -> None:
    async with serving(make_harness().app) as live:
        answer = await ask(live.port, SMUGGLED + get("/version"))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close\r\n" in answer.lower()


async def test_only_the_word_close_closes() -> None:
    requests = get("/version", "Connection: closed") + get("/version", "Connection: close")
    async with serving(make_harness().app) as live:
        answer = await ask(live.port, requests)
    assert answer.count(b"HTTP/1.1 200 ") == 2
