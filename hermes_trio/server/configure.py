"""Hypercorn's settings, and its log lines through ours."""

from __future__ import annotations

from typing import Any

import structlog
from hypercorn.config import Config
from hypercorn.logging import Logger

HEADER_BYTES = 16 * 1024


class StructlogLogger(Logger):
    """Sends Hypercorn's lines to structlog, and none for each request: that is the business of the application."""

    def __init__(self, config: Config) -> None:  # noqa: ARG002 - Hypercorn passes it
        """Set up no handlers: the original would give the root of the log a second voice."""
        self.error_logger = None
        self.access_logger = None
        self._log = structlog.get_logger("hypercorn")

    async def access(self, *_: Any) -> None:
        """Say nothing."""

    async def critical(self, message: str, *args: Any, **kwargs: Any) -> None:
        """A line of the highest level."""
        self._log.critical(message, *args, **kwargs)

    async def error(self, message: str, *args: Any, **kwargs: Any) -> None:
        """An error."""
        self._log.error(message, *args, **kwargs)

    async def warning(self, message: str, *args: Any, **kwargs: Any) -> None:
        """A warning."""
        self._log.warning(message, *args, **kwargs)

    async def info(self, message: str, *args: Any, **kwargs: Any) -> None:
        """A line for the operator."""
        self._log.info(message, *args, **kwargs)

    async def debug(self, message: str, *args: Any, **kwargs: Any) -> None:
        """A line for us."""
        self._log.debug(message, *args, **kwargs)

    async def exception(self, message: str, *args: Any, **kwargs: Any) -> None:
        """An error with its traceback."""
        self._log.exception(message, *args, **kwargs)

    async def log(self, level: int, message: str, *args: Any, **kwargs: Any) -> None:
        """A line of a level given as a number."""
        self._log.log(level, message, *args, **kwargs)


def hypercorn_config(
    certfile: str | None = None,
    keyfile: str | None = None,
    *,
    graceful_seconds: float = 5.0,
    keep_alive_seconds: float = 10.0,
) -> Config:
    """The settings of a server; with both a certificate and a key it speaks TLS.

    ``keep_alive_seconds`` is also the time a client has to send its headers. There is no read timeout because
    Hypercorn's would fire during a long answer too.
    """
    return Config.from_mapping(
        certfile=certfile,
        keyfile=keyfile,
        alpn_protocols=["h2", "http/1.1"],
        ssl_handshake_timeout=keep_alive_seconds,
        graceful_timeout=graceful_seconds,
        keep_alive_timeout=keep_alive_seconds,
        keep_alive_max_requests=100_000,
        read_timeout=None,
        backlog=1024,
        h11_max_incomplete_size=HEADER_BYTES,
        h2_max_header_list_size=2 * HEADER_BYTES,
        include_server_header=False,
        accesslog=None,
        errorlog=None,
        logger_class=StructlogLogger,
    )
