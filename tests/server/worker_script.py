"""A worker for tests of the supervisor: does one thing after the other, as its arguments say.

``worker_script.py CHANNEL FOLDER NAME STEP...``: each start and each order is appended to
``FOLDER/NAME``. The steps:

    ready           report that it is ready
    refuse          report that it cannot start, and exit with code 2
    crash           exit with code 3
    kill            die by a signal
    once            exit with code 3, but only in the first of its processes
    stubborn        ignore every order, and the end of the supervisor
    obey            wait for orders: exit at the first, or at the end of the supervisor
    finish          wait for orders: exit at the second, or at the end of the supervisor
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

from hermes_trio.server.worker_channel import Ready, Refused, encode_report


class Script:
    """The steps of one process."""

    def __init__(self, channel: socket.socket, notes: Path) -> None:
        self._channel, self._notes = channel, notes
        self._is_first = not notes.exists()
        self._note(f"started {os.getpid()}")

    def _note(self, text: str) -> None:
        with self._notes.open("a") as file:
            file.write(f"{text}\n")

    def ready(self) -> None:
        with suppress(BrokenPipeError):  # the supervisor is gone, as the next step will notice
            self._channel.sendall(encode_report(Ready()))

    def refuse(self) -> None:
        self._channel.sendall(encode_report(Refused("agent: there is none")))
        sys.exit(2)

    def crash(self) -> None:
        sys.exit(3)

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def once(self) -> None:
        if self._is_first:
            sys.exit(3)

    def stubborn(self) -> None:
        threading.Event().wait()

    def obey(self, orders: int = 1) -> None:
        lines = self._channel.makefile("rb")
        for _ in range(orders):
            line = b""
            with suppress(ConnectionResetError):  # the supervisor died before it read a report
                line = lines.readline()
            self._note(line.decode().strip() or "lost")

    def finish(self) -> None:
        self.obey(2)


def main() -> None:
    """Take the steps that the command line names."""
    descriptor, folder, name, *steps = sys.argv[1:]
    script = Script(socket.socket(fileno=int(descriptor)), Path(folder) / name)
    for step in steps:
        getattr(script, step)()


main()
