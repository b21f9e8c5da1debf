"""HTTP/1.1: what goes out in which write."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.wire import BODY_FOLLOWS
from tests.server.apps import Receive, Send, body, lifespan
from tests.server.raw import connect, get, read_until
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
