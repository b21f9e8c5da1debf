"""HTTP/1.1: what goes out in which write."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.wire import BODY_FOLLOWS, SEND_NOW, SEND_PART
from tests.server.apps import BIG, Receive, Send, body, lifespan, start
from tests.server.raw import connect, get, read_to_end, read_until
from tests.server.running import serving


class Slow:
    """Sends a head, and the body when it is told to."""

    def __init__(self, body_follows: bool) -> None:
        self._head = {"type": "http.response.start", "status": 200, "headers": [], BODY_FOLLOWS: body_follows}
        self.has_begun, self.may_end = trio.Event(), trio.Event()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        await send(self._head)
        self.has_begun.set()
        await self.may_end.wait()
        await body(send, b"Hello")


def peek(stream: trio.SocketStream) -> bytes:
    """What has arrived and was not read yet."""
    with socket.socket(fileno=os.dup(stream.socket.fileno())) as same:
        return same.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)


@pytest.mark.parametrize("body_follows", [True, False])
async def test_a_head_waits_for_its_body_if_that_follows(body_follows: bool) -> None:
    app = Slow(body_follows)
    async with serving(app) as live, await connect(live.port) as stream:
        await stream.send_all(get("/"))
        await app.has_begun.wait()
        await wait_all_tasks_blocked()
        if body_follows:
            with pytest.raises(BlockingIOError):
                peek(stream)
        else:
            assert (await read_until(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        app.may_end.set()
        answer = await read_until(stream, b"0\r\n\r\n")
        assert b"5\r\nHello\r\n" in answer
        assert answer.startswith(b"HTTP/1.1 200") is body_follows


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
        ("GET / HTTP/1.1", (LENGTH, (b"Connection", b"x-other")), {b"content-length: 2"}, b"\r\n\r\nok"),
    ],
)
async def test_every_answer_is_framed(
    line: str, headers: tuple[tuple[bytes, bytes], ...], framing: set[bytes], end: bytes
) -> None:
    """Also those whose heads are sent as they are, and all say that the connection ends, as the client wished."""
    async with serving(Plain(*headers)) as live, await connect(live.port) as stream:
        await stream.send_all(f"{line}\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
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


class AtOnce:
    """Sends parts without waiting, the last time when its client is gone; what is left over goes with the next part."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = parts
        self.gone: list[bool] = []
        self.is_over = trio.Event()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        await start(send)
        has_gone_out = [scope[SEND_NOW](part) for part in self._parts]
        assert has_gone_out == [len(part) < 1_000 for part in self._parts]
        await scope[SEND_PART](b"")
        await body(send, b"end")
        self.gone = [scope[SEND_NOW](b"lost")]
        self.is_over.set()


@pytest.mark.parametrize("parts", [(b"a", b"b"), (b"a", BIG)])
async def test_parts_that_are_sent_at_once_lose_and_repeat_nothing(parts: tuple[bytes, ...]) -> None:
    app = AtOnce(*parts)
    async with serving(app) as live, await connect(live.port) as stream:
        await stream.send_all(get("/", "Connection: close"))
        answer = await read_to_end(stream)
        await app.is_over.wait()
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b"end"))
    assert answer.partition(b"\r\n\r\n")[2] == chunks + b"0\r\n\r\n"
    assert app.gone == [False]
