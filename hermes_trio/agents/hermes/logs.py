"""Two logs in one process: ours on stderr, and the files that Hermes keeps in its home.

Hermes hangs its files on the root logger and lowers the root's level for them. Left alone, its chatter would fill our log,
and our lines, which are redacted where they are written and not before, would stand in its files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PACKAGE = frozenset(
    {
        "acp_adapter", "agent", "cli", "cron", "gateway", "hermes_cli", "hermes_constants", "hermes_logging",
        "hermes_state", "model_tools", "plugins", "providers", "run_agent", "tools", "toolsets",
        "trajectory_compressor", "utils",
    }
)  # fmt: skip
OUR_LOGGERS = frozenset({"hermes_trio", "hypercorn", "quart"})


def _family(record: logging.LogRecord) -> str:
    return record.name.partition(".")[0]


class _InOurs(logging.Filter):
    """What may stand in our log: what its level allows, and of Hermes only what somebody should look at."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self.level = level
        self.floor = logging.ERROR  # while it starts it warns of every tool that lacks a key

    def filter(self, record: logging.LogRecord) -> bool:
        wanted = self.floor if _family(record) in PACKAGE and self.level > logging.DEBUG else self.level
        return record.levelno >= wanted


class _InTheirs(logging.Filter):
    """What may stand in the files of Hermes."""

    def filter(self, record: logging.LogRecord) -> bool:
        return _family(record) not in OUR_LOGGERS


_IN_THEIRS = _InTheirs()


@contextmanager
def separate_logs() -> Iterator[Callable[[], None]]:
    """Keep the two apart for the length of a block. To be told when Hermes has set up its own."""
    root = logging.getLogger()
    level = root.level
    ours = [handler for handler in root.handlers if _IN_THEIRS not in handler.filters]
    in_ours = _InOurs(level)
    for handler in ours:
        handler.addFilter(in_ours)

    def settle() -> None:
        in_ours.floor = max(level, logging.WARNING)
        for handler in root.handlers:
            if handler not in ours:
                handler.addFilter(_IN_THEIRS)

    try:
        yield settle
    finally:
        for handler in ours:
            handler.removeFilter(in_ours)
        root.setLevel(level)
