"""What is changed in this process while the agent is there: where its prints go, and what its tools see of ours."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

# Not structlog: where nobody configured that, it prints, and a print that is logged by printing has no end.
log = logging.getLogger(__name__)

LONGEST_LINE = 4_096
OUR_PREFIX = "HERMES_TRIO_"
OUR_SECRETS = ("API_SERVER_KEY", "DATABASE_URL")


class PrintGuard:
    """Stands in for ``sys.stdout``: prints of one thread pass, those of all others become lines of the log.

    Hermes prints notes about retries and errors from threads that it makes itself, so no mark of ours could tell
    them from others. The server's own thread is the one whose prints are meant for the person at the terminal.
    """

    def __init__(self, real: TextIO) -> None:
        self.guard = self
        self._real = real
        self._own_thread = threading.get_ident()
        self._lines = threading.local()

    def write(self, text: str) -> int:
        """Pass a piece on, or keep it until its line is complete."""
        if self._passes():
            return self._real.write(text)
        *whole, rest = (getattr(self._lines, "rest", "") + text).replace("\r", "\n").split("\n")
        if len(rest) > LONGEST_LINE:
            whole, rest = [*whole, rest], ""
        self._lines.rest = rest
        self._log(filter(None, map(str.strip, whole)))
        return len(text)

    def flush(self) -> None:
        """Only what passes can be flushed."""
        if self._passes():
            self._real.flush()

    def isatty(self) -> bool:
        """No: nobody wants spinners in a log."""
        return self._passes() and self._real.isatty()

    def __getattr__(self, name: str) -> Any:
        """Whatever else a stream has."""
        return getattr(self._real, name)

    def _passes(self) -> bool:
        """Also for a handler of the log that prints: its lines are in the log already."""
        return threading.get_ident() == self._own_thread or getattr(self._lines, "logging", False)

    def _log(self, lines: Iterable[str]) -> None:
        self._lines.logging = True
        try:
            for line in lines:
                log.info("hermes-agent printed: %s", line[:LONGEST_LINE])
        finally:
            self._lines.logging = False


@contextmanager
def guarded_prints() -> Iterator[None]:
    """Guard ``sys.stdout`` for the length of a block. Entered in the server's own thread."""
    before = sys.stdout
    guard = PrintGuard(before)
    sys.stdout = guard
    try:
        yield
    finally:
        # Hermes wraps the stream in one of its own, which shows us through. Somebody else's stays.
        if getattr(sys.stdout, "guard", None) is guard:
            sys.stdout = before


@contextmanager
def hidden_settings() -> Iterator[None]:
    """Take the server's settings out of the environment: Hermes hands it to tools, and does not know these names."""
    names = [name for name in os.environ if name.startswith(OUR_PREFIX) or name in OUR_SECRETS]
    hidden = {name: os.environ.pop(name) for name in names}
    try:
        yield
    finally:
        os.environ.update(hidden)
