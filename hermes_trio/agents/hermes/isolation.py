"""Isolate ``hermes-agent`` within this process.

Its prints, its log files, and what its tools see of our environment.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

# Not structlog: unconfigured, it prints, and logging a print by printing would never end.
log = logging.getLogger(__name__)

MAX_LINE_CHARS = 4_096
OUR_PREFIX = "HERMES_TRIO_"
OUR_SECRETS = ("API_SERVER_KEY", "DATABASE_URL")
HERMES_LOGGERS = frozenset(
    {
        "acp_adapter", "agent", "cli", "cron", "gateway", "hermes_cli", "hermes_constants", "hermes_logging",
        "hermes_state", "model_tools", "plugins", "providers", "run_agent", "tools", "toolsets",
        "trajectory_compressor", "utils",
    }
)  # fmt: skip
OUR_LOGGERS = frozenset({"hermes_trio", "hypercorn", "quart"})


# -- standard output --


class PrintGuard:
    """A replacement for ``sys.stdout`` that passes the prints of one thread and logs those of all others.

    Hermes prints notes about retries and errors from threads that it creates itself, so they cannot
    be marked. The server's own thread is the one whose prints are meant for the user at the
    terminal.
    """

    def __init__(self, real: TextIO) -> None:
        self.guard = self
        self._real = real
        self._own_thread = threading.get_ident()
        self._lines = threading.local()

    def write(self, text: str) -> int:
        """Pass the text on, or buffer it until its line is complete and log that."""
        if self._passes():
            return self._real.write(text)
        *whole, rest = (getattr(self._lines, "rest", "") + text).replace("\r", "\n").split("\n")
        if len(rest) > MAX_LINE_CHARS:
            whole, rest = [*whole, rest], ""
        self._lines.rest = rest
        self._log(filter(None, map(str.strip, whole)))
        return len(text)

    def flush(self) -> None:
        """Flush the real stream, in the thread that writes to it."""
        if self._passes():
            self._real.flush()

    def isatty(self) -> bool:
        """Return False for logged threads, so that they show no spinners."""
        return self._passes() and self._real.isatty()

    def __getattr__(self, name: str) -> Any:
        """Delegate everything else to the real stream."""
        return getattr(self._real, name)

    def _passes(self) -> bool:
        # A log handler that prints passes too: its lines are in the log already.
        return threading.get_ident() == self._own_thread or getattr(self._lines, "logging", False)

    def _log(self, lines: Iterable[str]) -> None:
        self._lines.logging = True
        try:
            for line in lines:
                log.info("hermes-agent printed: %s", line[:MAX_LINE_CHARS])
        finally:
            self._lines.logging = False


@contextmanager
def guard_prints() -> Iterator[None]:
    """Guard ``sys.stdout`` within a block, which must be entered in the server's own thread."""
    before = sys.stdout
    guard = PrintGuard(before)
    sys.stdout = guard
    try:
        yield
    finally:
        # Hermes wraps the stream in one of its own, which exposes our attribute. Any other
        # replacement stays.
        if getattr(sys.stdout, "guard", None) is guard:
            sys.stdout = before


# -- environment --


@contextmanager
def hide_settings() -> Iterator[None]:
    """Remove the server's settings from the environment within a block.

    Hermes passes the environment on to tools, and its own redaction does not know these names.
    """
    names = [name for name in os.environ if name.startswith(OUR_PREFIX) or name in OUR_SECRETS]
    hidden = {name: os.environ.pop(name) for name in names}
    try:
        yield
    finally:
        os.environ.update(hidden)


# -- logs --


def _top_package(record: logging.LogRecord) -> str:
    return record.name.partition(".")[0]


class _OurLogFilter(logging.Filter):
    """Admits to our log what its level allows, and from Hermes only what needs attention."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self.level = level
        self.hermes_level = logging.ERROR  # at startup, Hermes warns about every tool without a key

    def filter(self, record: logging.LogRecord) -> bool:
        is_limited = _top_package(record) in HERMES_LOGGERS and self.level > logging.DEBUG
        return record.levelno >= (self.hermes_level if is_limited else self.level)


class _HermesLogFilter(logging.Filter):
    """Keeps our records out of the log files of Hermes."""

    def filter(self, record: logging.LogRecord) -> bool:
        return _top_package(record) not in OUR_LOGGERS


_HERMES_LOG_FILTER = _HermesLogFilter()


@contextmanager
def separate_logs() -> Iterator[Callable[[], None]]:
    """Keep our log and the log files of Hermes apart within a block.

    Call the yielded function once Hermes has started.

    Hermes attaches its files to the root logger and lowers the root's level for them. Its debug
    output would fill our log, and our records, which are redacted only by our own handlers, would
    end up in its files.
    """
    root = logging.getLogger()
    level = root.level
    ours = [handler for handler in root.handlers if _HERMES_LOG_FILTER not in handler.filters]
    our_filter = _OurLogFilter(level)
    for handler in ours:
        handler.addFilter(our_filter)

    def on_started() -> None:
        our_filter.hermes_level = max(level, logging.WARNING)
        for handler in root.handlers:
            if handler not in ours:
                handler.addFilter(_HERMES_LOG_FILTER)

    try:
        yield on_started
    finally:
        for handler in ours:
            handler.removeFilter(our_filter)
        root.setLevel(level)
