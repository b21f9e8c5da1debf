"""The ``terminal`` tool, and the :class:`Terminal` underneath that runs shell commands.

:meth:`Terminal.run` blocks its thread; :meth:`Terminal.stop` may be called from any other thread
and takes effect at once. Each command is a process group of its own, so that killing it kills its
children too. The reading thread polls three file descriptors and nothing else:

* the pipe with the output;
* a *pidfd*, readable when the shell has exited, because a background child can hold the pipe open indefinitely;
* an *eventfd*, written by :meth:`Terminal.stop`.

A process group is signalled by number, and the number can be reused as soon as its process has been
waited for. :class:`_ProcessGroup` therefore never signals after the shell has been reaped.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import select
import shlex
import signal
import struct
import subprocess
import termios
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import trio
from attrs import field, frozen

from hermes_trio.core.shorten import HeadTailBuffer
from hermes_trio.tools.base import (
    NOT_APPROVED,
    OutputListener,
    Tool,
    ToolError,
    ToolUse,
    approval_pattern,
    safe_environment,
    tool,
    tool_thread_limiter,
)
from hermes_trio.tools.danger import find_dangers
from hermes_trio.tools.files import FileError, resolve_path
from hermes_trio.tools.harmless import UNASKED_ENVIRONMENT
from hermes_trio.tools.sandbox import Sandbox

DEFAULT_SECONDS = 120.0
MAX_SECONDS = 600.0
TOOL_OUTPUT_CHARS = 50_000
OUTPUT_CHARS = 200_000
TERMINATE_GRACE_SECONDS = 0.2  # between SIGTERM and SIGKILL
MAX_SESSIONS = 10_000

_PIPE_BYTES = 65_536  # the capacity of a pipe
_MAX_POLL_SECONDS = 1_000_000.0  # poll() takes at most 24 days

# There is no terminal and no keyboard.
_FORCED_VARIABLES = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


# -- the tool --


def make_terminal(
    seconds: float = DEFAULT_SECONDS,
    most_seconds: float = MAX_SECONDS,
    characters: int = TOOL_OUTPUT_CHARS,
    environment: tuple[str, ...] = (),
    allow: tuple[str, ...] = (),
    ask_in_sandbox: bool = True,
) -> Tool:
    """Create a terminal tool, which remembers each session's working directory.

    Args:
        seconds: the time limit of a command if the model does not set one.
        most_seconds: the largest time limit that the model can set.
        characters: how much of the output is kept.
        environment: names of variables that commands may see in addition to the safe ones.
        allow: commands that run without approval, such as ``make test``, in addition to the
            harmless ones. More arguments may follow.
        ask_in_sandbox: whether commands ask that run in a sandbox without network, where they can
            change nothing but the workspace.
    """
    directories, default = _WorkingDirectories(), seconds

    @tool
    async def terminal(command: str, seconds: float = default, *, use: ToolUse) -> str:
        """Run a shell command in the workspace and return what it prints.

        There is no input and no screen. The working directory is kept from one command to the next.
        Background processes are killed when the command ends.

        Args:
            command: a command line for /bin/sh.
            seconds: the time limit.
            use: the call.
        """
        directory = directories.current(use)
        environ = safe_environment(os.environ, environment)
        found = await trio.to_thread.run_sync(
            find_dangers, command, allow, limiter=tool_thread_limiter()
        )
        is_confined = use.sandbox is not None and not use.sandbox.network
        if not found or (is_confined and not ask_in_sandbox):
            environ |= UNASKED_ENVIRONMENT
        else:
            description = "; ".join(danger.description for danger in found)
            pattern = approval_pattern(_approval_kind(use.workspace, directory), command)
            is_permanent = all(danger.allows_permanent for danger in found)
            if not await use.ask(command, description, (pattern,), is_permanent):
                raise ToolError(NOT_APPROVED)
        limit = max(min(seconds, most_seconds), 0.0)
        job = _CommandJob(command, directory, limit, characters, environ)
        result, ended_in = await job.run(use)
        return _report(result, limit, directories.update(use, ended_in))

    return terminal


def _approval_kind(workspace: Path, directory: Path) -> str:
    """Return what distinguishes the same command in different directories."""
    place = directory.resolve().relative_to(workspace.resolve())
    return "terminal" if place == Path() else f"terminal in {place}"


@frozen
class _CommandJob:
    """One command, run in a thread for a tool call."""

    command: str
    directory: Path
    seconds: float
    characters: int
    environ: dict[str, str] = field(repr=False)

    async def run(self, use: ToolUse) -> tuple[CommandResult, str]:
        """Run the command and return its result and final working directory, "" if unknown.

        A cancellation stops the command first, then waits for the thread, which takes a fraction of
        a second. Output is delivered by a call into Trio, so that the cancellation ends a blocked
        delivery too.
        """
        terminal = Terminal(
            self.directory, self.characters, self.environ, use.sandbox, use.workspace
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_on_cancel, terminal)
            ended = await trio.to_thread.run_sync(
                self._run_sync, terminal, use.output, limiter=tool_thread_limiter()
            )
            nursery.cancel_scope.cancel()
        return ended

    def _run_sync(self, terminal: Terminal, output: OutputListener) -> tuple[CommandResult, str]:
        with TemporaryDirectory(prefix="hermes-trio-") as scratch:
            note = Path(scratch, "directory").resolve()
            on_exit = shlex.quote(f"pwd -P >{shlex.quote(str(note))}")
            command = f"trap {on_exit} EXIT; {self.command}"
            result = terminal.run(
                command,
                lambda text: trio.from_thread.run(output, text),
                self.seconds,
                (Path(scratch),),
            )
            return result, note.read_text("utf-8", "replace") if note.exists() else ""


async def _stop_on_cancel(terminal: Terminal) -> None:
    try:
        await trio.sleep_forever()
    finally:
        terminal.stop()


class _WorkingDirectories:
    """The directory in which each session's last command ended, if it is in the workspace."""

    def __init__(self) -> None:
        self._by_session: OrderedDict[tuple[str, str], Path] = OrderedDict()

    def current(self, use: ToolUse) -> Path:
        """Return the directory for the next command."""
        directory = self._by_session.get((use.principal, use.session_id), use.workspace)
        return directory if _is_in_workspace(use.workspace, directory) else use.workspace

    def update(self, use: ToolUse, ended_in: str) -> str:
        """Record where a command ended.

        Return a note for the model if the directory has changed.
        """
        before = self.current(use).resolve()
        after = Path(ended_in.removesuffix("\n")) if ended_in else before
        if after == before:
            return ""
        if not _is_in_workspace(use.workspace, after):
            return "[outside the workspace: the next command does not start there]"
        session = (use.principal, use.session_id)
        self._by_session[session] = after
        self._by_session.move_to_end(session)
        if len(self._by_session) > MAX_SESSIONS:
            self._by_session.popitem(last=False)
        return f"[working directory: {after.relative_to(use.workspace.resolve())}]"


def _is_in_workspace(workspace: Path, directory: Path) -> bool:
    try:
        return resolve_path(workspace, str(directory)).is_dir()
    except FileError:
        return False


def _report(result: CommandResult, seconds: float, directory_note: str) -> str:
    """Return the output of a command with notes on how it ended.

    Raises:
        ToolError: with the same text, if the command failed.
    """
    notes = [
        f"[killed after {seconds:g} seconds: it took too long]" if result.timed_out else "",
        f"[exit code {result.exit_code}]" if result.exit_code else "",
        directory_note,
    ]
    text = "\n".join(filter(None, (result.output.rstrip("\n"), *notes))) or "(no output)"
    if result.exit_code or result.timed_out:
        raise ToolError(text)
    return text


# -- running a command --


@frozen
class CommandResult:
    """How a command ended.

    Death by a signal is reported as 128 plus the signal number, as in a shell.
    """

    output: str
    exit_code: int
    timed_out: bool = False
    interrupted: bool = False
    truncated: bool = False


def _ignore(_text: str) -> None:
    """Discard output."""


class Terminal:
    """Runs commands in a directory until it is stopped. Thread-safe; create one per turn.

    In a sandbox, they can change the workspace, which is the directory itself if none is given.
    """

    def __init__(
        self,
        directory: Path,
        limit: int = OUTPUT_CHARS,
        environ: Mapping[str, str] | None = None,
        sandbox: Sandbox | None = None,
        workspace: Path | None = None,
    ) -> None:
        self._directory, self._limit = directory, limit
        self._sandbox, self._workspace = sandbox, workspace or directory
        inherited = safe_environment(os.environ) if environ is None else dict(environ)
        self._environ = inherited | _FORCED_VARIABLES
        self._lock = threading.Lock()
        self._stopped = False
        self._groups: set[_ProcessGroup] = set()

    def run(
        self,
        command: str,
        on_output: Callable[[str], object] = _ignore,
        seconds: float = DEFAULT_SECONDS,
        writable: Sequence[Path] = (),
    ) -> CommandResult:
        """Run a command to its end. Blocks.

        Args:
            command: for ``/bin/sh -c``.
            on_output: receives the output as it arrives, up to the limit. If it raises, the command
                is killed and the
                exception propagates.
            seconds: the time limit.
            writable: folders that the command may change in a sandbox, besides the workspace.
        """
        output = _OutputCapture(self._limit, on_output)
        with ExitStack() as stack:
            try:
                group = stack.enter_context(_ProcessGroup())
                if not stack.enter_context(self._registered(group)):
                    return CommandResult("", 128 + signal.SIGTERM, interrupted=True)
                process = stack.enter_context(
                    self._started(self._command_line(command, writable), group)
                )
                pidfd = os.pidfd_open(process.pid)
            except (OSError, ValueError) as error:
                exit_code = 127 if isinstance(error, FileNotFoundError) else 126
                return CommandResult(f"cannot run the command: {error}", exit_code)
            stack.callback(os.close, pidfd)
            reader = _OutputReader(process, pidfd, group, output)
            end = reader.read_to_end(time.monotonic() + min(seconds, _MAX_POLL_SECONDS))
        returncode = process.returncode
        return CommandResult(
            output.text,
            returncode if returncode >= 0 else 128 - returncode,
            end is _CommandEnd.TIMED_OUT,
            end is _CommandEnd.STOPPED,
            output.is_cut,
        )

    def stop(self) -> None:
        """Terminate what is running and start nothing more. Returns at once."""
        with self._lock:
            self._stopped = True
            groups = list(self._groups)
        for group in groups:
            group.terminate()

    @contextmanager
    def _registered(self, group: _ProcessGroup) -> Iterator[bool]:
        with self._lock:
            self._groups.add(group)
            may_start = not self._stopped
        try:
            yield may_start
        finally:
            with self._lock:
                self._groups.discard(group)

    def _command_line(self, command: str, writable: Sequence[Path]) -> list[str]:
        line = ["/bin/sh", "-c", command]
        if self._sandbox is None:
            return line
        # The sandbox has the real paths only.
        return self._sandbox.wrap(
            line,
            self._workspace.resolve(),
            self._directory.resolve(),
            [path.resolve() for path in writable],
        )

    @contextmanager
    def _started(
        self, command: list[str], group: _ProcessGroup
    ) -> Iterator[subprocess.Popen[bytes]]:
        # Leaving the Popen block waits for the shell, so the whole group must be dead by then.
        with subprocess.Popen(  # noqa: S603 - running what an agent asks for is the purpose
            command,
            bufsize=0,
            cwd=self._directory,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            group.attach(process.pid)
            try:
                yield process
            finally:
                group.kill_and_detach()


class _ProcessGroup:
    """A command's process group, which any thread may signal, and the eventfd that wakes its reader."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pgid = 0  # 0: not started yet, or about to be reaped
        self._is_terminated = False

    def __enter__(self) -> Self:
        self.wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            os.close(self.wake_fd)
            self.wake_fd = -1

    def attach(self, pgid: int) -> None:
        """Set the group that was started.

        It is terminated at once if :meth:`terminate` was called meanwhile.
        """
        with self._lock:
            self._pgid = pgid
            if self._is_terminated:
                self._signal(signal.SIGTERM)

    def terminate(self) -> None:
        """Send SIGTERM and wake the reader; only the first call has an effect.

        The signal is sent here and not by the reader, which may be blocked in ``on_output``.
        """
        with self._lock:
            if self._is_terminated:
                return  # many programs treat a second SIGTERM as a demand to skip their clean-up
            self._is_terminated = True
            if self.wake_fd >= 0:
                os.eventfd_write(self.wake_fd, 1)
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        with self._lock:
            self._signal(signal.SIGKILL)

    def kill_and_detach(self) -> None:
        """Kill what is left and never signal again.

        The number may soon belong to another process.
        """
        with self._lock:
            self._signal(signal.SIGKILL)
            self._pgid = 0

    def _signal(self, number: signal.Signals) -> None:
        if self._pgid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pgid, number)


class _CommandEnd(Enum):
    """Why reading a command's output ended."""

    EXITED = "exited"
    STOPPED = "stopped"
    TIMED_OUT = "timed out"


class _OutputReader:
    """Reads a command's output until the command exits or is terminated."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        pidfd: int,
        group: _ProcessGroup,
        output: _OutputCapture,
    ) -> None:
        assert process.stdout is not None
        self._pipe, self._pidfd, self._group, self._output = (
            process.stdout.fileno(),
            pidfd,
            group,
            output,
        )
        self._poll = select.poll()
        self._watched = {self._pipe, pidfd, group.wake_fd}
        for fd in self._watched:
            self._poll.register(fd, select.POLLIN)

    def read_to_end(self, deadline: float) -> _CommandEnd:
        """Read until the command exits, is stopped or times out.

        Then kill the group and read the rest.
        """
        end = self._read_until(deadline)
        if end is not _CommandEnd.EXITED:
            self._group.terminate()
            self._unwatch(self._group.wake_fd)
            # Allow the shell to exit and the last holder of the pipe to close it.
            grace = time.monotonic() + TERMINATE_GRACE_SECONDS
            while self._watched and (ready := self._wait(grace)):
                if self._pipe in ready:
                    self._read(_PIPE_BYTES)
                else:
                    self._unwatch(self._pidfd)
        self._group.kill()
        # A process that left the group may write forever: take only what is in the pipe now.
        if self._pipe in self._watched:
            waiting: int = struct.unpack("i", fcntl.ioctl(self._pipe, termios.FIONREAD, b"\0" * 4))[
                0
            ]
            if waiting:
                self._read(waiting)
        self._output.close()
        return end

    def _read_until(self, deadline: float) -> _CommandEnd:
        while True:
            ready = self._wait(deadline)
            # A stopped shell has exited too, so the eventfd is checked first.
            if self._group.wake_fd in ready:
                return _CommandEnd.STOPPED
            if self._pidfd in ready:
                return _CommandEnd.EXITED
            if not ready:
                return _CommandEnd.TIMED_OUT
            self._read(_PIPE_BYTES)

    def _wait(self, deadline: float) -> set[int]:
        """Return the ready descriptors.

        An empty set after the deadline, even if output never pauses.
        """
        left = deadline - time.monotonic()
        return {fd for fd, _ in self._poll.poll(left * 1000)} if left > 0 else set()

    def _read(self, size: int) -> None:
        data = os.read(self._pipe, size)
        if data:
            self._output.add(data)
        else:
            self._unwatch(self._pipe)

    def _unwatch(self, fd: int) -> None:
        self._watched.discard(fd)
        self._poll.unregister(fd)


class _OutputCapture:
    """Decodes output and keeps its beginning and end.

    The listener receives the first ``limit`` characters.
    """

    def __init__(self, limit: int, listener: Callable[[str], object]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._listener = listener
        self._kept = HeadTailBuffer(limit)
        self._listener_budget = limit

    @property
    def is_cut(self) -> bool:
        """Whether part of the output was dropped."""
        return self._kept.is_cut

    @property
    def text(self) -> str:
        """The whole output, or its two ends around a note."""
        return self._kept.text

    def add(self, data: bytes) -> None:
        """Add a piece, which may end in the middle of a character."""
        self._take(self._decoder.decode(data))

    def close(self) -> None:
        """Flush the decoder; an incomplete character becomes a replacement character."""
        self._take(self._decoder.decode(b"", final=True))

    def _take(self, text: str) -> None:
        self._kept.add(text)
        live = text[: self._listener_budget]
        self._listener_budget = max(self._listener_budget - len(text), 0)
        if live:
            self._listener(live)
