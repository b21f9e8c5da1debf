"""The tool that reads a text file."""

from __future__ import annotations

from hermes_trio.tools import files
from hermes_trio.tools.base import ToolUse, tool


@tool
def read_file(path: str, offset: int = 1, limit: int = files.LINES, *, use: ToolUse) -> str:
    """Read a text file of the workspace. A long file is read in parts: a note at the end says how to go on.

    Args:
        path: relative to the workspace.
        offset: the first line, counted from 1.
        limit: how many lines at most.
        use: the call.
    """
    return files.read_file(use.workspace, path, offset, limit)
