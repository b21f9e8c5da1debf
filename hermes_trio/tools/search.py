"""The ``search_files`` tool, which finds files by name or content.

The search runs :mod:`hermes_trio.tools.search_worker` in a child process: a regular expression can
backtrack forever while it holds the GIL, and only a process can be killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
import trio
from attrs import evolve

from hermes_trio.tools import search_worker
from hermes_trio.tools.base import ToolError, ToolUse, safe_environment, tool
from hermes_trio.tools.files import resolve_path
from hermes_trio.tools.sandbox import Sandbox, python_paths

SEARCH_SECONDS = 10.0
DEFAULT_RESULTS = 100
MAX_RESULTS = 1_000
_COMMAND = (sys.executable, "-I", "-S", str(Path(search_worker.__file__)))


@tool
async def search_files(
    pattern: str,
    target: Literal["content", "name"] = "content",
    path: str = ".",
    names: str = "",
    limit: int = DEFAULT_RESULTS,
    *,
    use: ToolUse,
) -> str:
    """Search the files in the workspace.

    Directories of version control and installed packages are skipped.

    Args:
        pattern: what to find: a regular expression for the content, or a glob such as *.py for the
            name.
        target: whether to search file contents or file names.
        path: the directory to start in, relative to the workspace.
        names: a glob; only files with matching names are searched.
        limit: the maximum number of results.
        use: the call.
    """
    root = resolve_path(use.workspace, ".")
    start = resolve_path(use.workspace, path or ".")
    if not start.exists():
        raise ToolError(f"{path}: No such file or directory")
    request = {
        "root": str(root),
        "start": str(start),
        "pattern": pattern,
        "target": target,
        "names": names,
        "limit": max(min(limit, MAX_RESULTS), 1),
    }
    output = bytearray()
    exit_code = 0
    with trio.move_on_after(SEARCH_SECONDS) as timeout:
        exit_code = await _run_worker(use.sandbox, root, msgspec.json.encode(request), output)
    text = output.decode("utf-8", "replace").rstrip("\n")
    if exit_code == search_worker.EXIT_BAD_PATTERN:
        raise ToolError(f"argument 'pattern': {text}")
    if not timeout.cancelled_caught:
        return text or "no matches"
    note = f"[stopped after {SEARCH_SECONDS:g} seconds: search a smaller directory or use a simpler pattern]"
    if not text:
        raise ToolError(note)
    return f"{text}\n{note}"


async def _run_worker(
    sandbox: Sandbox | None, root: Path, request: bytes, output: bytearray
) -> int:
    """Run the worker to its end, appending to ``output``, and return its exit code.

    Cancellation kills it.
    """
    command: Sequence[str] = _COMMAND
    if sandbox is not None:
        readable = (*sandbox.readable, *python_paths())
        command = evolve(sandbox, network=False, readable=readable).wrap(command, root, root)
    start = partial(
        trio.run_process,
        command,
        stdin=request,
        stdout=subprocess.PIPE,
        check=False,
        env=safe_environment(os.environ),
    )
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(start)
        assert process.stdout is not None
        async for piece in process.stdout:
            output += piece
    return process.returncode or 0
