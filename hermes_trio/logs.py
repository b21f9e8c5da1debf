"""Log lines on stderr, as text or JSON, through one chain for structlog and for the standard library's loggers.

Everything bound with ``structlog.contextvars`` (run, request) is on each line, and every text
passes the redaction before it is written.
"""

from __future__ import annotations

import logging
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import structlog
from attrs import frozen
from structlog.types import EventDict, Processor, WrappedLogger

from hermes_trio.log_tail import PROCESS_TAIL

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

Redact = Callable[[str], str]

# Libraries that bring their own handlers; theirs would bypass format and redaction.
_ROUTED = (
    "hypercorn",
    "hypercorn.access",
    "hypercorn.error",
    "quart",
    "quart.app",
    "quart.serving",
)
MAX_TEXT_CHARS = 50_000  # of a traceback or another value
_ACCEPTING = ("trio.serve_listeners",)
_MANY_LINES = ("exception", "stack")
# A client can put these in a path or a header; written raw they would forge lines or drive the
# terminal.
_CONTROL = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160))}


def default_redact(text: str) -> str:
    """Mask secrets by the server's own rules, and shorten texts of megabytes."""
    # Imported here, because a caller with its own redaction does not need it.
    from hermes_trio.core.redact import redact_message  # noqa: PLC0415

    return redact_message(text, MAX_TEXT_CHARS)


def configure(
    level: str, fmt: str, redact: Redact = default_redact, *, worker: int | None = None
) -> None:
    """Send all logging to stderr. May be called again; the last call counts.

    Args:
        level: ``debug``, ``info``, ``warning``, ``error`` or ``critical``.
        fmt: ``text`` for people, ``json`` for one JSON object per line.
        redact: applied to every text before it is written.
        worker: number of this process among several workers, for every line.
    """
    redact("")  # a redaction that cannot work must fail here, not in the middle of an error report
    number = logging.getLevelNamesMapping()[level.upper()]
    shared = _shared(worker)
    _configure_structlog(number, shared)
    _configure_standard(number, _formatter(fmt, redact, sys.stderr, shared))


class LineHandler(logging.StreamHandler[TextIO]):
    """The handler on the root logger that ``configure`` owns.

    Others belong to tests and embedding programs. What it writes is also the tail of the log.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for a record, and add it to the tail, where terminal colours mean nothing."""
        text = super().format(record)
        PROCESS_TAIL.append(record.created, record.levelname.lower(), _COLOURS.sub("", text))
        return text


class RateLimitFilter(logging.Filter):
    """Passes at most one record per interval, without its traceback.

    Trio logs ten times a second that no file descriptor is left for a new connection, which would
    fill the disk.
    """

    def __init__(self, seconds: float = 10.0) -> None:
        super().__init__()
        self._seconds, self._next = seconds, -math.inf

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is passed."""
        if record.created < self._next and self._next - record.created < self._seconds:
            return False
        self._next = record.created + self._seconds
        record.exc_info = None
        return True


@frozen
class RedactingProcessor:
    """A structlog processor that passes every string in an event through ``redact``, however deeply nested."""

    redact: Redact

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Return the event with redacted values."""
        return {name: self._clean(value) for name, value in event.items()}

    def _clean(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, Mapping):
            return {self._text(name): self._clean(item) for name, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self._clean(item) for item in value]
        return self._text(value)

    def _text(self, value: object) -> str:
        # Other values would be formatted later, after the redaction: format them now.
        return self.redact(value if isinstance(value, str) else repr(value))


def escape_control(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Keep a text event on one line. Only a traceback, which is our own text, may have several."""
    return {name: _escaped(value, name in _MANY_LINES) for name, value in event.items()}


def _escaped(value: Any, keep_lines: bool) -> Any:
    if not isinstance(value, str):
        return value
    lines = value.split("\n") if keep_lines else [value]
    return "\n".join(line.translate(_CONTROL) for line in lines)


def _shared(worker: int | None) -> list[Processor]:
    """Return the processors for every event, from structlog and from the standard library."""

    def add_worker(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        # Not a context variable, which threads that an agent starts would not have.
        return {"worker": worker, **event}

    return [
        *([] if worker is None else [add_worker]),
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]


def _configure_structlog(level: int, shared: Sequence[Processor]) -> None:
    structlog.configure(
        processors=[
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,  # a logger made before a second call must follow it
    )


def _formatter(
    fmt: str, redact: Redact, stream: TextIO, shared: Sequence[Processor]
) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            RedactingProcessor(redact),
            *_renderers(fmt, stream),
        ],
    )


def _renderers(fmt: str, stream: TextIO) -> Sequence[Processor]:
    if fmt == "json":
        return (structlog.processors.EventRenamer("message"), structlog.processors.JSONRenderer())
    plain = (
        structlog.dev.plain_traceback
    )  # the traceback was rendered before, so that it could be redacted
    return (
        escape_control,
        structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain),
    )


def _configure_standard(level: int, formatter: logging.Formatter) -> None:
    handler = LineHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [other for other in root.handlers if not isinstance(other, LineHandler)] + [
        handler
    ]
    root.setLevel(level)
    logging.getLogger("httpx2").setLevel(
        max(level, logging.WARNING)
    )  # it logs every request of a model call
    for name in _ROUTED:
        _route_to_root(logging.getLogger(name))
    for name in _ACCEPTING:
        logging.getLogger(name).filters = [RateLimitFilter()]


def _route_to_root(logger: logging.Logger) -> None:
    logger.handlers = []
    logger.propagate = True
    logger.setLevel(logging.NOTSET)
