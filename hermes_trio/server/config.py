"""Hypercorn's configuration, its listening sockets, and its log messages in ours."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Any

import structlog
import trio
from hypercorn.config import Config, Sockets
from hypercorn.logging import Logger

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.server.sockets import BACKLOG

HEADER_BYTES = 16 * 1024

LISTENERS = 4
"""How many times each socket is listened on.

Trio accepts one connection per listener and scheduler pass.
"""


class StructlogLogger(Logger):
    """Sends Hypercorn's messages to structlog.

    The application logs requests, so there is no access log.
    """

    def __init__(self, config: Config) -> None:  # noqa: ARG002 - Hypercorn passes it
        """Install no handlers: those of the original would print every line twice."""
        self.access_logger = None
        self.error_logger = structlog.get_logger("hypercorn")

    async def info(self, message: str, *args: Any, **kwargs: Any) -> None:
        """Log for debugging: Hypercorn's only message at this level is the address, once per listener."""
        await self.debug(message, *args, **kwargs)


class ServerConfig(Config):
    """Hypercorn's configuration with listening sockets that were opened before, and a certificate that can change."""

    sockets: Sequence[socket.socket] = ()
    _current_context: ssl.SSLContext | None = None

    def create_sockets(self) -> Sockets:
        """Return each socket `LISTENERS` times, as duplicates that Hypercorn closes.

        Trio's listeners accept one connection per scheduler pass. Under load a pass is long, and a
        burst of clients would wait for as many passes as there are clients.
        """
        listening = [sock.dup() for sock in self.sockets for _ in range(LISTENERS)]
        for sock in listening:
            sock.setblocking(False)
        if not self.ssl_enabled:
            return Sockets([], listening, [])
        local = [sock for sock in listening if sock.family == socket.AF_UNIX]
        return Sockets([sock for sock in listening if sock not in local], local, [])

    def create_ssl_context(self) -> ssl.SSLContext | None:
        """Return a context whose handshakes use the certificate that was loaded last."""
        context = super().create_ssl_context()
        if context is not None:
            context.sni_callback = self._use_current_context
        return context

    def _use_current_context(
        self, connection: ssl.SSLObject, _name: str | None, _first: ssl.SSLContext
    ) -> None:
        # Replacing the context of a handshake is the public way to change certificate and key
        # together; open connections keep theirs.
        if self._current_context is not None:
            connection.context = self._current_context

    async def reload_certificate(self) -> None:
        """Read certificate and key again, for the connections to come.

        Raises:
            ConfigurationError: They cannot be read or do not belong together.
        """
        try:
            self._current_context = await trio.to_thread.run_sync(super().create_ssl_context)
        except OSError as error:  # also ssl.SSLError
            raise ConfigurationError(f"certfile, keyfile: {error}") from None


def hypercorn_config(
    certfile: str | None = None,
    keyfile: str | None = None,
    *,
    graceful_seconds: float = 5.0,
    keep_alive_seconds: float = 10.0,
) -> ServerConfig:
    """Return the configuration of a server; with a certificate and a key it speaks TLS.

    `keep_alive_seconds` is also the time that a client has to send its headers. There is no read
    timeout because Hypercorn's would also fire during a long response.
    """
    config = ServerConfig.from_mapping(
        certfile=certfile,
        keyfile=keyfile,
        alpn_protocols=["h2", "http/1.1"],
        ssl_handshake_timeout=keep_alive_seconds,
        graceful_timeout=graceful_seconds,
        keep_alive_timeout=keep_alive_seconds,
        keep_alive_max_requests=100_000,
        read_timeout=None,
        backlog=BACKLOG,
        h11_max_incomplete_size=HEADER_BYTES,
        h2_max_header_list_size=2 * HEADER_BYTES,
        include_server_header=False,
        accesslog=None,
        errorlog=None,
        logger_class=StructlogLogger,
    )
    assert isinstance(config, ServerConfig)
    return config
