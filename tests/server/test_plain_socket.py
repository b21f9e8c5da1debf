"""Connections without TLS: who is at their ends, and what Trio's stream would do for them."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from hermes_trio.server.accepting import Door, Stream
from hermes_trio.server.configure import hypercorn_config
from hermes_trio.server.plain_socket import PlainSocket, close
from hermes_trio.server.sockets import has_options, open_listening_sockets
from hermes_trio.server.worker import serve
from tests.server.apps import Receive, Send, lifespan
from tests.server.raw import get, read_to_end
from tests.server.test_guards_sockets import has_ipv6

CLOSE = "Connection: close"

Pair = tuple[PlainSocket, socket.socket]


async def tell_ends(scope: Any, receive: Receive, send: Send) -> None:
    """Answer with the addresses that the server says a request came from and to."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    text = json.dumps([scope["client"], scope["server"]]).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": text})


def own(host: str) -> Callable[[], socket.socket]:
    return lambda: open_listening_sockets(host, 0)[0]


def of_others() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


ipv6 = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")


@pytest.mark.parametrize(
    ("listen", "host"),
    [
        (own("127.0.0.1"), "127.0.0.1"),
        (own("0.0.0.0"), "127.0.0.1"),
        (own("0.0.0.0"), "127.0.0.2"),
        pytest.param(own("::1"), "::1", marks=ipv6),
        pytest.param(own("::"), "::1", marks=ipv6),
        (of_others, "127.0.0.1"),
    ],
)
async def test_the_application_is_told_who_is_at_both_ends(
    listen: Callable[[], socket.socket], host: str
) -> None:
    sock, stop = listen(), trio.Event()
    port = sock.getsockname()[1]
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            config = hypercorn_config(graceful_seconds=0.05)
            await nursery.start(partial(serve, tell_ends, [sock], config, stop.wait))
            async with await trio.open_tcp_stream(host, port) as client:
                await client.send_all(get("/", CLOSE))
                answer = await read_to_end(client)
                ends = [list(client.socket.getsockname()[:2]), [host, port]]
            stop.set()
    assert json.dumps(ends).encode() in answer


async def test_a_unix_socket_has_no_addresses(tmp_path: Path) -> None:
    sock, stop = socket.socket(socket.AF_UNIX), trio.Event()
    path = str(tmp_path / "s")
    sock.bind(path)
    sock.listen()
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            config = hypercorn_config(graceful_seconds=0.05)
            await nursery.start(partial(serve, tell_ends, [sock], config, stop.wait))
            async with await trio.open_unix_socket(path) as client:
                await client.send_all(get("/", CLOSE))
                assert b"[null, null]" in await read_to_end(client)
            stop.set()


def test_only_our_own_listening_sockets_pass_all_options_on() -> None:
    with closing(own("127.0.0.1")()) as ours, closing(of_others()) as others:
        assert has_options(ours)
        assert not has_options(others)
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        assert not has_options(ours)
    with closing(socket.socket(socket.AF_UNIX)) as unix:
        assert not has_options(unix)


def test_an_option_that_the_kernel_does_not_know_is_not_there() -> None:
    class Old:
        family = socket.AF_INET

        def getsockopt(self, *_: int) -> int:
            raise OSError("no such option")

        def setsockopt(self, *_: int) -> None:
            """Take it."""

    assert not has_options(Old())


@pytest.fixture
def pair() -> Iterator[Pair]:
    entered: list[Stream] = []
    with (
        closing(own("127.0.0.1")()) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        Door(listening, None, entered.append).let_in()
        [stream] = entered
        assert isinstance(stream, PlainSocket)
        yield stream, client
        close(stream.socket)


async def test_it_is_a_stream(pair: Pair) -> None:
    stream, client = pair
    client.sendall(b"question")
    assert await stream.receive_some() == b"question"
    await stream.wait_send_all_might_not_block()
    await stream.send_all(b"answer")
    assert client.recv(9) == b"answer"
    await stream.aclose()
    await stream.aclose()
    assert client.recv(9) == b""


async def test_it_waits_for_room_in_the_kernel(pair: Pair) -> None:
    stream, client = pair
    many = bytes(2**24)

    async def send() -> None:
        await stream.send_all(many)
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        reader = trio.SocketStream(trio.socket.from_stdlib_socket(client))
        assert len(await read_to_end(reader)) == len(many)


async def test_what_is_closed_says_so(pair: Pair) -> None:
    stream, _ = pair
    await stream.aclose()
    for use in (partial(stream.send_all, b"x"), stream.wait_send_all_might_not_block, stream.receive_some):
        with pytest.raises(trio.ClosedResourceError):
            await use()


async def test_who_waits_hears_that_it_is_closed(pair: Pair) -> None:
    stream, _ = pair

    async def wait() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await stream.receive_some()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        close(stream.socket)
