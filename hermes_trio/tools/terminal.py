"""A terminal for agents: runs shell commands from an agent's thread, and can be stopped from any other at once.

A command is a process group of its own, so that ending it ends its children too. Its reader sleeps on three file
descriptors and on nothing else:

* the pipe with the output;
* a *pidfd*, readable when the shell has exited, because a background child can hold the pipe open for ever;
* a *bell*, an eventfd that :meth:`Terminal.stop` rings.

Signals go to a number, and a number is free for others as soon as its process has been waited for. Therefore the shell
stays unwaited until the last signal is sent; :class:`_Leash` holds that line.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Self

from attrs import frozen

from hermes_trio.tools.capture import Capture
from hermes_trio.tools.environment import plain_environment

OUTPUT_LIMIT = 200_000
TIME_LIMIT = 120.0
GRACE = 0.2  # between "please end" and "end"

_PIECE = 65_536  # what a pipe holds
_LONGEST = 1_000_000.0  # poll takes no more than 24 days

# Nobody sits at the keyboard.
_FORCED = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


@frozen
class CommandResult:
    """How a command ended. A signal shows as 128 + its number, as in a shell."""

    output: str
    exit_code: int
    timed_out: bool = False
    interrupted: bool = False
    truncated: bool = False


def _ignore(_text: str) -> None:
    """For callers that only want the result."""


class Terminal:
    """Runs commands in a folder until it is stopped. One per turn; several threads may share it."""

    def __init__(
        self, folder: Path, limit: int = OUTPUT_LIMIT, environ: Mapping[str, str] | None = None
    ) -> None:
        self._folder, self._limit = folder, limit
        self._environ = (plain_environment(os.environ) if environ is None else dict(environ)) | _FORCED
        self._lock = threading.Lock()
        self._stopped = False
        self._leashes: set[_Leash] = set()

    def run(
        self, command: str, on_output: Callable[[str], object] = _ignore, seconds: float = TIME_LIMIT
    ) -> CommandResult:
        """Run a command to its end.

        Args:
            command: for ``/bin/sh -c``.
            on_output: gets the output as it comes, up to the limit. What it raises ends the command and goes on.
            seconds: how long the command may take.
        """
        output = Capture(self._limit, on_output)
        with ExitStack() as stack:
            try:
                leash = stack.enter_context(_Leash())
                if not stack.enter_context(self._registered(leash)):
                    return CommandResult("", 128 + signal.SIGTERM, interrupted=True)
                process = stack.enter_context(self._started(command, leash))
                pidfd = os.pidfd_open(process.pid)
            except (OSError, ValueError) as error:
                return _not_started(error)
            stack.callback(os.close, pidfd)
            end = _Follower(process, pidfd, leash, output).follow(time.monotonic() + min(seconds, _LONGEST))
        return CommandResult(
            output.text, _exit_code(process.returncode), end is _End.LATE, end is _End.STOPPED, output.is_cut
        )

    def stop(self) -> None:
        """End what runs, and start nothing any more. Returns at once."""
        with self._lock:
            self._stopped = True
            leashes = list(self._leashes)
        for leash in leashes:
            leash.pull()

    @contextmanager
    def _registered(self, leash: _Leash) -> Iterator[bool]:
        with self._lock:
            self._leashes.add(leash)
            may_start = not self._stopped
        try:
            yield may_start
        finally:
            with self._lock:
                self._leashes.discard(leash)

    @contextmanager
    def _started(self, command: str, leash: _Leash) -> Iterator[subprocess.Popen[bytes]]:
        # Leaving the Popen waits for the shell, so everybody has to be dead by then.
        with subprocess.Popen(  # noqa: S603 - to run what an agent asks for is the purpose
            ["/bin/sh", "-c", command],
            bufsize=0,
            cwd=self._folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            leash.hold(process.pid)
            try:
                yield process
            finally:
                leash.let_go()


class _Leash:
    """What another thread holds of a command: its reader's bell, and the group while it may be signalled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._group = 0
        self._is_pulled = False

    def __enter__(self) -> Self:
        self.bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            os.close(self.bell)
            self.bell = -1

    def hold(self, group: int) -> None:
        """The group exists from now on; it may have been called off while it was starting."""
        with self._lock:
            self._group = group
            if self._is_pulled:
                self._signal(signal.SIGTERM)

    def pull(self) -> None:
        """Wake the reader and ask the group to end. The reader may be busy elsewhere: so both are done here."""
        with self._lock:
            if self._is_pulled:
                return  # many programs take a second request for impatience
            self._is_pulled = True
            if self.bell >= 0:
                os.eventfd_write(self.bell, 1)
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the group, now."""
        with self._lock:
            self._signal(signal.SIGKILL)

    def let_go(self) -> None:
        """Kill what is left and never signal again: the number may soon belong to somebody else."""
        with self._lock:
            self._signal(signal.SIGKILL)
            self._group = 0

    def _signal(self, number: signal.Signals) -> None:
        if self._group:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, number)


class _End(Enum):
    """Why a reader stopped following."""

    EXITED = "exited"
    STOPPED = "stopped"
    LATE = "late"


class _Follower:
    """Reads a command's output until the command ends or has to be ended."""

    def __init__(self, process: subprocess.Popen[bytes], pidfd: int, leash: _Leash, output: Capture) -> None:
        assert process.stdout is not None
        self._pipe, self._pidfd, self._leash, self._output = process.stdout.fileno(), pidfd, leash, output
        self._poll = select.poll()
        self._watched = {self._pipe, pidfd, leash.bell}
        for fd in self._watched:
            self._poll.register(fd, select.POLLIN)

    def follow(self, deadline: float) -> _End:
        """Follow to the end, however it comes. The group is killed then, and its output read."""
        end = self._watch(deadline)
        if end is not _End.EXITED:
            self._leash.pull()
            self._forget(self._leash.bell)
            self._settle(time.monotonic() + GRACE)
        self._leash.kill()
        self._drain()
        self._output.close()
        return end

    def _watch(self, deadline: float) -> _End:
        while True:
            ready = self._wait(deadline)
            # A stopped shell has exited too; the bell tells why.
            if self._leash.bell in ready:
                return _End.STOPPED
            if self._pidfd in ready:
                return _End.EXITED
            if not ready:
                return _End.LATE
            self._read(_PIECE)

    def _settle(self, deadline: float) -> None:
        """Wait until the shell has exited and nobody holds the pipe any more, but not for long."""
        while self._watched and (ready := self._wait(deadline)):
            if self._pipe in ready:
                self._read(_PIECE)
            else:
                self._forget(self._pidfd)

    def _wait(self, deadline: float) -> set[int]:
        """The descriptors that are ready; none when the time is over, even if the output never pauses."""
        left = deadline - time.monotonic()
        return {fd for fd, _ in self._poll.poll(left * 1000)} if left > 0 else set()

    def _drain(self) -> None:
        # A process that left the group may write for ever: take what is there now, not what comes.
        if self._pipe in self._watched:
            waiting: int = struct.unpack("i", fcntl.ioctl(self._pipe, termios.FIONREAD, b"\0" * 4))[0]
            if waiting:
                self._read(waiting)

    def _read(self, size: int) -> None:
        data = os.read(self._pipe, size)
        if data:
            self._output.add(data)
        else:
            self._forget(self._pipe)

    def _forget(self, fd: int) -> None:
        self._watched.discard(fd)
        self._poll.unregister(fd)


def _not_started(error: Exception) -> CommandResult:
    return CommandResult(
        f"cannot run the command: {error}", 127 if isinstance(error, FileNotFoundError) else 126
    )


def _exit_code(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode
