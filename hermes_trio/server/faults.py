"""What went wrong on connections: one line in the log and one count each, and never a second failure."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress

import structlog

_log = structlog.get_logger(__name__)

OnFault = Callable[[BaseException], None]


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The single exceptions inside an exception, however deep the groups go."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def place(error: BaseException) -> str:
    """File and line where an exception was raised."""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "unknown"


class Faults:
    """Counts the faults of connections and passes each on to whoever wants to know."""

    def __init__(self, on_fault: OnFault | None = None) -> None:
        self.count = 0
        self._on_fault = on_fault

    def record(self, error: BaseException) -> None:
        """Take note of what ended a connection. Whatever fails in here stays in here."""
        for leaf in leaves(error):
            self.count += 1
            with suppress(Exception):
                _log.warning("connection_fault", error=repr(leaf)[:200], at=place(leaf))
            if self._on_fault is not None:
                with suppress(Exception):
                    self._on_fault(leaf)
