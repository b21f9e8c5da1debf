"""Starts a server with something wrong around it.

``python -m tests.robustness.real_launch clock=FILE -- serve --port 0``.

``threads=FILE`` lets no thread start while the file is there; ``clock=FILE`` shifts the wall clock
by the seconds that the file holds, at any time; ``readonly=FILE`` lets nobody write to the database
while the file is there; ``sockets=quick`` has vanished clients noticed in seconds instead of half a
minute; ``stall=FILE`` lets no transaction end while the file is there, as a disk that hangs does.
With ``threads`` and ``sockets`` Trio keeps no idle threads, where it would for ten seconds: none is
left for those who may start none, and none has to be waited for.
"""

from __future__ import annotations

import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

QUICK_SECONDS = 2  # until a client that vanished is given up


def _forbid_threads(path: str) -> None:
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if Path(path).exists():
            raise RuntimeError(
                "can't start new thread"
            )  # as the interpreter says it at the system's limit
        real(thread)

    threading.Thread.start = start  # type: ignore[method-assign,assignment]
    _keep_no_threads()


def _keep_no_threads() -> None:
    from trio._core import _thread_cache  # noqa: PLC0415 - after the faults around it

    _thread_cache.IDLE_TIMEOUT = 0.01  # type: ignore[assignment]


def _shift_the_clock(path: str) -> None:
    real, file = time.time, Path(path)
    time.time = lambda: real() + float(file.read_text() or 0)


def _forbid_writing(path: str) -> None:
    class Watched(sqlite3.Connection):
        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
            if sql.startswith("BEGIN"):
                super().execute(f"PRAGMA query_only = {int(Path(path).exists())}")
            return super().execute(sql, *rest)

    real = sqlite3.connect
    sqlite3.connect = lambda *args, **more: real(*args, **{**more, "factory": Watched})


def _stall(path: str) -> None:
    class Stalled(sqlite3.Connection):
        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
            while sql.startswith("COMMIT") and Path(path).exists():
                time.sleep(0.01)
            return super().execute(sql, *rest)

    real = sqlite3.connect
    sqlite3.connect = lambda *args, **more: real(*args, **{**more, "factory": Stalled})


def _notice_soon(_: str) -> None:
    from hermes_trio.server import sockets  # noqa: PLC0415 - the other faults must be there before it is imported

    _keep_no_threads()
    quick = {socket.TCP_KEEPIDLE: 1, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: 2}
    quick[socket.TCP_USER_TIMEOUT] = QUICK_SECONDS * 1000
    sockets.OPTIONS = tuple(  # type: ignore[assignment]  # of the same form
        (level, option, quick.get(option, value) if level == socket.IPPROTO_TCP else value)
        for level, option, value in sockets.OPTIONS
    )


_FAULTS: dict[str, Callable[[str], None]] = {
    "threads": _forbid_threads,
    "clock": _shift_the_clock,
    "readonly": _forbid_writing,
    "sockets": _notice_soon,
    "stall": _stall,
}


def command(**faults: object) -> tuple[str, ...]:
    """The command that starts such a server."""
    words = (f"{name}={value}" for name, value in faults.items())
    return (
        sys.executable,
        "-m",
        "tests.robustness.real_launch",
        *words,
        "--",
        "serve",
        "--port",
        "0",
    )


def main() -> None:
    """Set the faults up and serve."""
    border = sys.argv.index("--")
    for word in sys.argv[1:border]:
        name, _, value = word.partition("=")
        _FAULTS[name](value)
    from hermes_trio.cli import main as serve  # noqa: PLC0415 - see above

    sys.argv = ["hermes-trio", *sys.argv[border + 1 :]]
    serve()


if __name__ == "__main__":
    main()
