"""The tool that runs shell commands.

The work is done by :class:`~hermes_trio.tools.terminal.Terminal` in a thread. A cancelled call stops the command first
and then waits for the thread, which is a matter of a fraction of a second.
"""

from __future__ import annotations

import os
import shlex
from collections import OrderedDict
from pathlib import Path
from tempfile import TemporaryDirectory

import trio
from attrs import field, frozen

from hermes_trio.tools.base import (
    NOT_APPROVED,
    OutputListener,
    Tool,
    ToolError,
    ToolUse,
    tool,
    tool_thread_limiter,
)
from hermes_trio.tools.danger import dangers
from hermes_trio.tools.environment import plain_environment
from hermes_trio.tools.files import FileError, resolved
from hermes_trio.tools.terminal import CommandResult, Terminal

SECONDS = 120.0
MOST_SECONDS = 600.0
CHARACTERS = 50_000
MOST_SESSIONS = 10_000


def make_terminal(
    seconds: float = SECONDS,
    most_seconds: float = MOST_SECONDS,
    characters: int = CHARACTERS,
    environment: tuple[str, ...] = (),
) -> Tool:
    """A terminal with its own memory of where each session is.

    Args:
        seconds: how long a command may take if the model does not say.
        most_seconds: how long it may take if the model does.
        characters: how much of the output is kept.
        environment: names of variables that commands may see, apart from the plain ones.
    """
    places, default = _Places(), seconds

    @tool
    async def terminal(command: str, seconds: float = default, *, use: ToolUse) -> str:
        """Run a shell command in the workspace and return what it prints.

        There is no input and no screen. The working directory is kept from one command to the next. What is started
        in the background ends with the command.

        Args:
            command: for /bin/sh.
            seconds: how long it may take.
            use: the call.
        """
        await _ask_about(command, use)
        environ = plain_environment(os.environ, environment)
        job = _Job(command, places.of(use), max(min(seconds, most_seconds), 0.0), characters, environ)
        ran = await job.run(use)
        return _reported(ran.result, job.seconds, places.moved(use, ran))

    return terminal


async def _ask_about(command: str, use: ToolUse) -> None:
    found = await trio.to_thread.run_sync(dangers, command, limiter=tool_thread_limiter())
    if not found:
        return
    description = "; ".join(danger.description for danger in found)
    if not await use.ask(command, description, tuple(danger.key for danger in found)):
        raise ToolError(NOT_APPROVED)


@frozen
class _Ran:
    """A command that has ended, and the folder that it ended in; none if that cannot be told."""

    result: CommandResult
    folder: str


@frozen
class _Job:
    """One command, and where it begins."""

    command: str
    folder: Path
    seconds: float
    characters: int
    environ: dict[str, str] = field(repr=False)

    async def run(self, use: ToolUse) -> _Ran:
        """Run it to its end. Its output is a call into this task, so that a cancellation ends that too."""
        terminal = Terminal(self.folder, self.characters, self.environ)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_when_cancelled, terminal)
            ran = await trio.to_thread.run_sync(
                self._follow, terminal, use.output, limiter=tool_thread_limiter()
            )
            nursery.cancel_scope.cancel()
        return ran

    def _follow(self, terminal: Terminal, say: OutputListener) -> _Ran:
        with TemporaryDirectory(prefix="hermes-trio-") as kept:
            note = Path(kept, "folder")
            at_exit = shlex.quote(f"pwd -P >{shlex.quote(str(note))}")
            command = f"trap {at_exit} EXIT; {self.command}"
            result = terminal.run(command, lambda text: trio.from_thread.run(say, text), self.seconds)
            return _Ran(result, note.read_text("utf-8", "replace") if note.exists() else "")


async def _stop_when_cancelled(terminal: Terminal) -> None:
    try:
        await trio.sleep_forever()
    finally:
        terminal.stop()


class _Places:
    """Where each session is: the folder in which its last command ended, if that is in the workspace."""

    def __init__(self) -> None:
        self._folders: OrderedDict[tuple[str, str], Path] = OrderedDict()

    def of(self, use: ToolUse) -> Path:
        """The folder for the next command."""
        folder = self._folders.get((use.principal, use.session_id), use.workspace)
        return folder if _is_folder_of(use.workspace, folder) else use.workspace

    def moved(self, use: ToolUse, ran: _Ran) -> str:
        """Remember where a command ended; says where that is if it is news."""
        before = self.of(use).resolve()
        after = Path(ran.folder.removesuffix("\n")) if ran.folder else before
        if after == before:
            return ""
        if not _is_folder_of(use.workspace, after):
            return "[outside of the workspace: the next command does not begin there]"
        self._keep((use.principal, use.session_id), after)
        return f"[working directory: {after.relative_to(use.workspace.resolve())}]"

    def _keep(self, session: tuple[str, str], folder: Path) -> None:
        self._folders[session] = folder
        self._folders.move_to_end(session)
        if len(self._folders) > MOST_SESSIONS:
            self._folders.popitem(last=False)


def _is_folder_of(workspace: Path, folder: Path) -> bool:
    try:
        return resolved(workspace, str(folder)).is_dir()
    except FileError:
        return False


def _reported(result: CommandResult, seconds: float, moved: str) -> str:
    """The output of a command and how it ended, unless well.

    Raises:
        ToolError: with the same, if it did not end well.
    """
    notes = [
        f"[ended after {seconds:g} seconds: it took too long]" if result.timed_out else "",
        f"[exit code {result.exit_code}]" if result.exit_code else "",
        moved,
    ]
    text = "\n".join(filter(None, (result.output.rstrip("\n"), *notes))) or "(no output)"
    if result.exit_code or result.timed_out:
        raise ToolError(text)
    return text
