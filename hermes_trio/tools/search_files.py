"""The tool that searches files, by name or by content."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
import trio
from attrs import define, field

from hermes_trio.tools import searching
from hermes_trio.tools.base import ToolError, ToolUse, tool
from hermes_trio.tools.environment import plain_environment
from hermes_trio.tools.files import resolved

SECONDS = 10.0
RESULTS = 100
MOST_RESULTS = 1_000
_BAD_PATTERN = 2  # exit code
_COMMAND = (sys.executable, "-I", "-S", str(Path(searching.__file__)))


@tool
async def search_files(
    pattern: str,
    target: Literal["content", "name"] = "content",
    path: str = ".",
    names: str = "",
    limit: int = RESULTS,
    *,
    use: ToolUse,
) -> str:
    """Search the files of the workspace. Folders of version control and of installed packages are left out.

    Args:
        pattern: what to find: a regular expression in the content, or a glob such as *.py for the name.
        target: where to look for it.
        path: the folder to begin in, relative to the workspace.
        names: a glob; only files whose names fit are looked at.
        limit: how many results at most.
        use: the call.
    """
    root = resolved(use.workspace, ".")
    start = resolved(use.workspace, path or ".")
    if not start.exists():
        raise ToolError(f"{path}: No such file or directory")
    request = {
        "root": str(root),
        "start": str(start),
        "pattern": pattern,
        "target": target,
        "names": names,
        "limit": max(min(limit, MOST_RESULTS), 1),
    }
    search = _Search(msgspec.json.encode(request))
    with trio.move_on_after(SECONDS) as patience:
        await search.run()
    return search.told(patience.cancelled_caught)


@define
class _Search:
    """A child process that searches, and what it has found."""

    request: bytes
    output: bytearray = field(factory=bytearray)
    exit_code: int = 0

    async def run(self) -> None:
        """Collect what it finds. A cancellation ends the child."""
        start = partial(
            trio.run_process, _COMMAND, stdin=self.request, stdout=subprocess.PIPE, check=False,
            env=plain_environment(os.environ),
        )  # fmt: skip
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(start)
            assert process.stdout is not None
            async for piece in process.stdout:
                self.output += piece
            self.exit_code = await process.wait()

    def told(self, is_late: bool) -> str:
        """What to tell the model.

        Raises:
            ToolError: the pattern cannot be used, or the time was over before anything was found.
        """
        text = self.output.decode("utf-8", "replace").rstrip("\n")
        note = f"[stopped after {SECONDS:g} seconds: search a smaller part, or with a simpler pattern]"
        if self.exit_code == _BAD_PATTERN:
            raise ToolError(f"argument 'pattern': {text}")
        if is_late and not text:
            raise ToolError(note)
        return "\n".join(filter(None, (text, note if is_late else ""))) or "nothing was found"
