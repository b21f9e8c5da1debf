"""The tool that changes a part of a text file."""

from __future__ import annotations

from hermes_trio.tools import files
from hermes_trio.tools.base import ToolError, ToolUse, tool


@tool
def patch(path: str, old_text: str, new_text: str, replace_all: bool = False, *, use: ToolUse) -> str:
    """Replace a piece of a text file of the workspace. The rest of the file stays as it is.

    Args:
        path: relative to the workspace.
        old_text: the piece, exactly as it stands in the file, with enough around it that it occurs once.
        new_text: what comes in its place.
        replace_all: replace every occurrence, however many there are.
        use: the call.
    """
    text = files.read_whole(use.workspace, path)
    old, new = _with_line_ends_of(text, old_text, new_text)
    count = _occurrences(text, old, path)
    if count > 1 and not replace_all:
        raise ToolError(
            f"{path}: old_text occurs {count} times: give more of what is around it, or set replace_all"
        )
    files.write_file(use.workspace, path, text.replace(old, new))
    return f"replaced {count} occurrence{'s' * (count > 1)} in {path}"


def _with_line_ends_of(text: str, old: str, new: str) -> tuple[str, str]:
    """Models write plain line ends. A file that has others keeps them."""
    if "\r\n" in text and "\r" not in old and "\n" in old + new:
        return old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    return old, new


def _occurrences(text: str, old: str, path: str) -> int:
    if not old:
        raise ToolError("old_text is empty: use write_file to make a file")
    count = text.count(old)
    if not count:
        near = f"; it does occur with other white space{_place(text, old)}" if _place(text, old) else ""
        raise ToolError(f"{path}: old_text does not occur in the file{near}")
    return count


def _place(text: str, old: str) -> str:
    """Where the first line of the piece stands, if white space is all that is wrong."""
    first = " ".join(old.strip().split("\n")[0].split())
    for number, line in enumerate(text.split("\n"), 1):
        if first and first == " ".join(line.split()):
            return f", perhaps in line {number}"
    return ""
