"""``hermes-trio serve --reload``: run the server in a child process, and restart it when its code changes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path

import trio

from hermes_trio.core.errors import ConfigurationError

FLAG = "--reload"
STOP_SECONDS = 2.0  # for running turns to finish, before the server is told to hurry
KILL_SECONDS = 10.0  # for the server to end then
SETTINGS_FILES = (".toml",)  # watched beside Python files


def main(arguments: Sequence[str]) -> int:
    """Serve with these arguments of the command line until SIGINT or SIGTERM. Return the exit code.

    Raises:
        ConfigurationError: the package that watches files is not installed.
    """
    if find_spec("watchfiles") is None:
        raise ConfigurationError("--reload needs the package watchfiles: pip install watchfiles")
    command = [sys.executable, "-m", "hermes_trio", *(each for each in arguments if each != FLAG)]
    trio.run(Reloader(command, Path.cwd()).run)
    return 0


class Reloader:
    """Keeps one child process running, and replaces it whenever a file below a folder changes."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command, self._folder = command, folder
        self._is_stopping = False
        self._interruption = trio.Event()

    async def run(self) -> None:
        """Run the command until SIGINT or SIGTERM."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_files)
            await nursery.start(self._receive_signals)
            while not self._is_stopping:
                await self._run_until_interrupted()
            nursery.cancel_scope.cancel()

    async def _run_until_interrupted(self) -> None:
        self._interruption = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_command)
            await self._interruption.wait()
            nursery.cancel_scope.cancel()

    async def _run_command(self) -> None:
        """Run the command, and report if it ends by itself: a change may repair what is wrong."""
        # In a group of its own, or Ctrl-C would reach it from the terminal and from here.
        ended = await trio.run_process(
            self._command,
            stdin=subprocess.DEVNULL,
            check=False,
            deliver_cancel=stop_process,
            process_group=0,
        )
        _report(f"the server ended with code {ended.returncode}; it starts again after a change")

    async def _watch_files(self) -> None:
        import watchfiles  # noqa: PLC0415  # of an extra

        relevant = watchfiles.PythonFilter(extra_extensions=SETTINGS_FILES)
        async with aclosing(watchfiles.awatch(self._folder, watch_filter=relevant)) as batches:
            async for batch in batches:
                names = sorted({Path(path).name for _, path in batch})
                _report(f"restarting after a change of {', '.join(names)}")
                self._interruption.set()

    async def _receive_signals(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
            task_status.started()
            async for _ in received:
                self._is_stopping = True
                self._interruption.set()


async def stop_process(process: trio.Process) -> None:
    """End a server: let it drain, tell it to hurry, kill it."""
    for seconds, send in (
        (STOP_SECONDS, process.terminate),
        (KILL_SECONDS, process.terminate),  # a second signal ends the drain
        (KILL_SECONDS, process.kill),
    ):
        send()
        with trio.move_on_after(seconds):
            await process.wait()
            return


def _report(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
