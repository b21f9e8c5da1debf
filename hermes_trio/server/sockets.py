"""Listening sockets whose connections notice that a client has vanished."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from attrs import frozen

BACKLOG = 4096
USER_TIMEOUT_SECONDS = 30
_PORT_ATTEMPTS = 5
_ABSENT = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}

# SO_KEEPALIVE detects a client that vanished while the server was silent, TCP_USER_TIMEOUT one that
# vanished with unacknowledged bytes. A connection inherits all options from the socket that
# accepted it.
OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_SECONDS * 1000),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)

# How much may be unsent in the kernel before a writer blocks. Trio's streams set the same; not
# every kernel has it.
LOW_WATER = (socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 2**14)


@frozen
class CannotListen(Exception):
    """The server cannot listen on an address; the text says why, in one line."""

    host: str  # or the path of a Unix socket
    port: int | None  # None for a Unix socket
    reason: str

    def __str__(self) -> str:
        port = "" if self.port is None else f" port {self.port}"
        return f"cannot listen on {self.host or '*'}{port}: {self.reason}"


@frozen
class PortInUse(CannotListen):
    """Another process has the port."""


class _Options(Protocol):
    @property
    def family(self) -> int: ...
    def getsockopt(self, level: int, option: int, /) -> int: ...
    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def set_options(sock: _Options) -> None:
    """Set the options on a listening socket or on a connection."""
    for level, option, value in OPTIONS:
        sock.setsockopt(level, option, value)
    with suppress(OSError):
        sock.setsockopt(*LOW_WATER)


def ensure_options(sock: _Options) -> None:
    """Set the options on a connection that was accepted by a listening socket of others."""
    if sock.family in {socket.AF_INET, socket.AF_INET6} and not sock.getsockopt(
        socket.SOL_SOCKET, socket.SO_KEEPALIVE
    ):
        set_options(sock)


def open_listening_sockets(host: str, port: int, backlog: int = BACKLOG) -> list[socket.socket]:
    """Listen on every address of a host, on one port; port 0 lets the system choose it.

    Raises:
        PortInUse: another process listens there.
        CannotListen: the host is unknown or not of this machine, or the port is not allowed.
    """
    for _ in range(_PORT_ATTEMPTS - 1 if port == 0 else 0):
        with suppress(PortInUse):  # chosen on one address, taken on the next
            return _open_all(host, port, backlog)
    return _open_all(host, port, backlog)


@contextmanager
def listening(host: str, port: int, unix_path: Path | None) -> Iterator[list[socket.socket]]:
    """Listen as `open_listening_sockets` does, and on a Unix socket, which comes last and is removed at the end.

    Raises:
        CannotListen: as there, or the Unix socket cannot be made.
    """
    sockets = open_listening_sockets(host, port)
    try:
        if unix_path is not None:
            sockets.append(_open_unix(unix_path))
        yield sockets
    finally:
        close_all(sockets)
        if unix_path is not None and sockets[-1].family == socket.AF_UNIX:
            unix_path.unlink(missing_ok=True)


def _open_unix(path: Path, backlog: int = BACKLOG) -> socket.socket:
    """Listen on a Unix socket that the user and the group of the server can connect to.

    One that a killed server has left is replaced.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_abandoned(path):
            path.unlink(missing_ok=True)
        sock.bind(str(path))
        path.chmod(0o660)  # nobody can connect before the next line
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        is_taken = error.errno == errno.EADDRINUSE
        reason = "a server or another file is there" if is_taken else error.strerror or str(error)
        raise CannotListen(str(path), None, reason) from error
    return sock


def _is_abandoned(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return path.is_socket()
        except OSError:
            pass
    return False


def _open_all(host: str, port: int, backlog: int) -> list[socket.socket]:
    opened: list[socket.socket] = []
    absent: CannotListen | None = None
    try:
        for family, address in _addresses(host, port):
            chosen = opened[0].getsockname()[1] if opened else port
            try:
                opened.append(_open(family, (address, chosen), backlog))
            except OverflowError as error:
                raise CannotListen(host, chosen, "there is no such port") from error
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise _explain(host, chosen, error) from error
                absent = _explain(
                    host, chosen, error
                )  # such as ::1 of localhost where there is no IPv6
    except BaseException:
        close_all(opened)
        raise
    if not opened:
        raise absent or CannotListen(host, port, "it has no address")
    return opened


def _addresses(host: str, port: int) -> Iterator[tuple[int, str]]:
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise CannotListen(host, port, str(error)) from error
    yield from dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found)


def _open(family: int, address: tuple[str, int], backlog: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # IPv4 has a socket of its own
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        set_options(sock)
        sock.bind(address)
        sock.listen(backlog)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _explain(host: str, port: int, error: OSError) -> CannotListen:
    if error.errno == errno.EADDRINUSE:
        return PortInUse(host, port, "the port is in use")
    return CannotListen(host, port, os.strerror(error.errno) if error.errno else str(error))


def close_all(sockets: Iterable[socket.socket]) -> None:
    """Close listening sockets."""
    for sock in sockets:
        sock.close()
