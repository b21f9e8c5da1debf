"""Listening sockets: their options, what connections inherit, and errors in one line."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
import trio

from hermes_trio.server import sockets as module
from hermes_trio.server.configure import hypercorn_config
from hermes_trio.server.connection import GuardedTCPServer
from hermes_trio.server.sockets import CannotListen, PortInUse, ensure_options, open_listening_sockets
from hermes_trio.server.worker import serve
from tests.server.apps import Demo
from tests.server.raw import connect, get, read_until
from tests.server.running import Live, hypercorn_serving, serving

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


def only_connection(live: Live) -> socket.socket:
    (one,) = live.guards.connections._open
    assert isinstance(one, GuardedTCPServer)
    assert one._plain is not None
    return socket.socket(fileno=socket.dup(one._plain.socket.fileno()))


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
        ensure_options(left, socket.AF_UNIX)


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
    ("host", "port"), [("192.0.2.1", 0), ("no.such.host.invalid", 0), ("127.0.0.1", 70_000), ("x" * 300, 0)]
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
        await serve(refuse, sockets, hypercorn_config(), trio.sleep_forever)
    assert sockets[0].fileno() == -1
