"""The latest log lines of the process, for those who watch it over HTTP."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import frozen

MAX_LINES = 1000
MAX_LINE_CHARS = 4000


@frozen
class LogLine:
    """One line of the log, redacted; a traceback belongs to its line."""

    number: int  # from 1, for each process anew
    at: float  # seconds since the epoch
    level: str
    text: str


class LogTail:
    """A bounded number of the latest log lines. Thread-safe, as any thread may log."""

    def __init__(self, max_lines: int = MAX_LINES) -> None:
        self._lines: deque[LogLine] = deque(maxlen=max_lines)
        # Reentrant, as the garbage collector may run a finalizer that logs while it is held.
        self._lock = threading.RLock()
        self._count = 0
        self._listeners: tuple[Callable[[], None], ...] = ()

    def append(self, at: float, level: str, text: str) -> None:
        """Add a line, and call all listeners. A long line is cut."""
        if len(text) > MAX_LINE_CHARS:
            text = f"{text[: MAX_LINE_CHARS - 1]}…"
        with self._lock:
            self._count += 1
            self._lines.append(LogLine(self._count, at, level, text))
            listeners = self._listeners
        for listener in listeners:
            listener()

    def read(self, after: int, limit: int = MAX_LINES) -> list[LogLine]:
        """Return the latest lines whose number is larger than `after`, oldest first."""
        with self._lock:
            found = [line for line in self._lines if line.number > after]
        return found[max(0, len(found) - limit) :]

    @property
    def count(self) -> int:
        """The number of the latest line."""
        return self._count

    @contextmanager
    def listening(self, listener: Callable[[], None]) -> Iterator[None]:
        """Have a listener called after each line, in the thread that logs; it must not log or raise."""
        with self._lock:
            self._listeners = (*self._listeners, listener)
        try:
            yield
        finally:
            with self._lock:
                self._listeners = tuple(each for each in self._listeners if each is not listener)


PROCESS_TAIL = LogTail()
"""What ``logs.configure`` writes to. Logging is configured once for a process, so there is one."""
