"""Listening sockets: their options, what connections inherit, and errors in one line."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes_trio.server import sockets as module
from hermes_trio.server.config import hypercorn_config
from hermes_trio.server.guards import Guards
from hermes_trio.server.main import serve_sockets
from hermes_trio.server.sockets import (
    CannotListen,
    PortInUse,
    ensure_options,
    open_listening_sockets,
)
from tests.server.apps import Demo, Receive, Send, body, lifespan, start
from tests.support.in_process_server import RunningServer, hypercorn_serving, serving
from tests.support.raw_http import ask, connect, get, read_to_end, read_until

WANTED = {
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 15,
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 5,
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): 3,
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT): 30_000,
    (socket.IPPROTO_TCP, socket.TCP_NODELAY): 1,
    (socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT): 2**14,
}


@pytest.fixture
def opened() -> Iterator[list[socket.socket]]:
    sockets: list[socket.socket] = []
    yield sockets
    for sock in sockets:
        sock.close()


def options(sock: socket.socket) -> dict[tuple[int, int], int]:
    return {key: sock.getsockopt(*key) for key in WANTED}


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_connections_inherit_the_options(opened: list[socket.socket]) -> None:
    opened += open_listening_sockets("127.0.0.1", 0)
    opened.append(socket.create_connection(opened[0].getsockname()))
    opened[0].setblocking(True)
    opened.append(opened[0].accept()[0])
    assert options(opened[-1]) == WANTED
    assert opened[0].getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1


def only_connection(live: RunningServer) -> socket.socket:
    (one,) = live.guards.connections
    return socket.socket(fileno=socket.dup(one.socket.fileno()))


@pytest.mark.parametrize("way", [serving, hypercorn_serving])
async def test_every_connection_has_the_options(way: type) -> None:
    """Also one that was accepted by a socket of Hypercorn's making."""
    async with way(Demo()) as live, await connect(live.port) as client:
        await client.send_all(get("/"))
        await read_until(client, b"hello")
        with closing(only_connection(live)) as sock:
            assert options(sock) == WANTED


def test_a_unix_socket_is_left_alone() -> None:
    left, right = socket.socketpair()
    with left, right:
        ensure_options(left)


def test_the_port_may_be_chosen_for_us(opened: list[socket.socket]) -> None:
    opened += open_listening_sockets("127.0.0.1", 0)
    assert len(opened) == 1
    assert opened[0].getsockname()[1] > 0


@pytest.mark.parametrize("host", ["localhost", ""])
def test_all_addresses_of_a_host_get_one_port(opened: list[socket.socket], host: str) -> None:
    opened += open_listening_sockets(host, 0)
    assert socket.AF_INET in {sock.family for sock in opened}
    assert len({sock.getsockname()[1] for sock in opened}) == 1


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
def test_ipv6(opened: list[socket.socket]) -> None:
    opened += open_listening_sockets("::1", 0)
    assert [sock.family for sock in opened] == [socket.AF_INET6]


def test_a_port_in_use_is_named(opened: list[socket.socket]) -> None:
    opened += open_listening_sockets("127.0.0.1", 0)
    port = opened[0].getsockname()[1]
    with pytest.raises(PortInUse) as caught:
        open_listening_sockets("127.0.0.1", port)
    assert str(caught.value) == f"cannot listen on 127.0.0.1 port {port}: the port is in use"


@pytest.mark.parametrize(
    ("host", "port"),
    [("192.0.2.1", 0), ("no.such.host.invalid", 0), ("127.0.0.1", 70_000), ("x" * 300, 0)],
)
def test_an_impossible_address_is_named(host: str, port: int) -> None:
    with pytest.raises(CannotListen) as caught:
        open_listening_sockets(host, port)
    assert not isinstance(caught.value, PortInUse)
    assert str(caught.value).startswith(f"cannot listen on {host} port {port}: ")
    assert "\n" not in str(caught.value)


def failing(number: int, family: int) -> object:
    real = module._open

    def fail(asked: int, *rest: object) -> socket.socket:
        if asked == family:
            raise OSError(number, "no")
        return real(asked, *rest)  # type: ignore[arg-type]

    return fail


BOTH = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]


def test_a_privileged_port_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_open", failing(errno.EACCES, socket.AF_INET))
    with pytest.raises(CannotListen, match="port 80: Permission denied"):
        open_listening_sockets("127.0.0.1", 80)


def test_a_missing_family_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, opened: list[socket.socket]
) -> None:
    monkeypatch.setattr(module, "_addresses", lambda *_: iter(BOTH))
    monkeypatch.setattr(module, "_open", failing(errno.EADDRNOTAVAIL, socket.AF_INET6))
    opened += open_listening_sockets("localhost", 0)
    assert [sock.family for sock in opened] == [socket.AF_INET]


def test_a_failure_half_way_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []
    fail = failing(errno.EADDRINUSE, socket.AF_INET6)

    def note(*args: object) -> socket.socket:
        made.append(fail(*args))  # type: ignore[operator]
        return made[-1]

    monkeypatch.setattr(module, "_addresses", lambda *_: iter(BOTH))
    monkeypatch.setattr(module, "_open", note)
    with pytest.raises(PortInUse):
        open_listening_sockets("localhost", 0)
    assert len(made) == module._PORT_ATTEMPTS
    assert all(sock.fileno() == -1 for sock in made)


async def test_the_sockets_are_closed_when_the_start_fails() -> None:
    async def refuse(scope: object, receive: object, send: object) -> None:
        await send({"type": "lifespan.startup.failed", "message": "no"})  # type: ignore[operator]

    sockets = open_listening_sockets("127.0.0.1", 0)
    with pytest.RaisesGroup(Exception):
        await serve_sockets(refuse, sockets, hypercorn_config(), trio.sleep_forever, Guards())
    assert sockets[0].fileno() == -1


async def tell_ends(scope: Any, receive: Receive, send: Send) -> None:
    """Answer with the addresses that the server says a request came from and to."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    await start(send)
    await body(send, json.dumps([scope["client"], scope["server"]]).encode())


async def ends_of(
    listening: socket.socket, connect_to: Callable[[], Awaitable[trio.SocketStream]]
) -> bytes:
    """What the application is told of a connection, after the head."""
    stop = trio.Event()
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            config = hypercorn_config(graceful_seconds=0.05)
            await nursery.start(serve_sockets, tell_ends, [listening], config, stop.wait, Guards())
            async with await connect_to() as client:
                await client.send_all(get("/", "Connection: close"))
                answer = await read_to_end(client)
            stop.set()
    return answer.partition(b"\r\n\r\n")[2]


ipv6 = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")


@pytest.mark.parametrize(
    ("bound", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.2"),
        pytest.param("::1", "::1", marks=ipv6),
        pytest.param("::", "::1", marks=ipv6),
    ],
)
async def test_the_application_is_told_who_is_at_both_ends(bound: str, host: str) -> None:
    (listening,) = open_listening_sockets(bound, 0)
    port = listening.getsockname()[1]
    answer = await ends_of(listening, partial(trio.open_tcp_stream, host, port))
    assert b'["%b", %d]]' % (host.encode(), port) in answer


async def test_a_unix_socket_has_no_addresses(tmp_path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path := str(tmp_path / "s"))
    listening.listen()
    assert b"[null, null]" in await ends_of(listening, partial(trio.open_unix_socket, path))


async def test_many_clients_at_once_are_served() -> None:
    async def ask_once(port: int) -> None:
        assert b"hello" in await ask(port, get("/", "Connection: close"))

    async with serving(Demo()) as live, trio.open_nursery() as nursery:
        for _ in range(200):
            nursery.start_soon(ask_once, live.port)


async def test_no_descriptor_is_left() -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with serving(Demo()) as live, await connect(live.port) as client:
        await client.send_all(get("/"))
        await read_until(client, b"hello")
    assert len(os.listdir("/proc/self/fd")) == before


async def test_no_connection_is_accepted_once_the_server_stops() -> None:
    app = Demo()
    async with (
        serving(app, hypercorn_config(graceful_seconds=60)) as live,
        await connect(live.port) as client,
    ):
        await client.send_all(get("/ticks"))
        await app.ticks.send(1)
        live.stop.set()
        await trio.testing.wait_all_tasks_blocked(0.02)
        with pytest.raises(OSError, match="all attempts to connect"):
            await connect(live.port)
