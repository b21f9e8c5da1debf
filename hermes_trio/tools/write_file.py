"""The tool that writes a text file."""

from __future__ import annotations

from hermes_trio.tools import files
from hermes_trio.tools.base import ToolUse, tool


@tool
def write_file(path: str, content: str, *, use: ToolUse) -> str:
    """Write a text file of the workspace as a whole. What was in it is gone; folders are made as needed.

    Args:
        path: relative to the workspace.
        content: all that the file shall hold.
        use: the call.
    """
    return f"wrote {files.write_file(use.workspace, path, content)} bytes to {path}"
