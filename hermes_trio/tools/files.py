"""The file tools, ``read_file``, ``write_file`` and ``patch``, confined to a workspace.

Paths are checked after all symbolic links have been resolved. This contains a model that goes
astray. It does not contain a process that swaps links during the check, and need not: such a
process runs as the same user and can open the files itself.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from hermes_trio.tools.base import ToolError, ToolUse, tool

DEFAULT_LINES = 2_000
MAX_CHARS = 200_000
MAX_LINE_BYTES = 65_536  # a longer line counts as several, so that no line is ever read whole
MAX_PATCH_BYTES = 10_000_000
_BINARY_PROBE_BYTES = 8_192


class FileError(ToolError):
    """A file cannot be read or written.

    The message is for the model and the user, and has the path as they gave it.
    """


class OutsideWorkspace(FileError):
    """The path leads out of the workspace."""


# -- the tools --


@tool
def read_file(path: str, offset: int = 1, limit: int = DEFAULT_LINES, *, use: ToolUse) -> str:
    """Read a text file in the workspace.

    A long file is returned in parts; a note at the end says how to continue.

    Args:
        path: relative to the workspace.
        offset: the first line to read, counted from 1.
        limit: the maximum number of lines.
        use: the call.
    """
    return read_lines(use.workspace, path, offset, limit)


@tool
def write_file(path: str, content: str, *, use: ToolUse) -> str:
    """Write a text file in the workspace.

    Existing content is replaced; missing directories are created.

    Args:
        path: relative to the workspace.
        content: the complete content of the file.
        use: the call.
    """
    return f"wrote {write_text(use.workspace, path, content)} bytes to {path}"


@tool
def patch(
    path: str, old_text: str, new_text: str, replace_all: bool = False, *, use: ToolUse
) -> str:
    """Replace a piece of a text file in the workspace. The rest of the file is left unchanged.

    Args:
        path: relative to the workspace.
        old_text: the piece to replace, exactly as it is in the file, with enough context to occur
            only once.
        new_text: the replacement.
        replace_all: replace every occurrence.
        use: the call.
    """
    if not old_text:
        raise ToolError("old_text is empty: use write_file to create a file")
    text = read_text(use.workspace, path)
    old, new = old_text, new_text
    if "\r\n" in text and "\r" not in old and "\n" in old + new:
        # Models write plain line ends. A file with CRLF keeps it.
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    count = text.count(old)
    if not count:
        line = _find_ignoring_whitespace(text, old)
        hint = f"; line {line} matches if whitespace is ignored" if line else ""
        raise ToolError(f"{path}: old_text does not occur in the file{hint}")
    if count > 1 and not replace_all:
        raise ToolError(
            f"{path}: old_text occurs {count} times: include more context, or set replace_all"
        )
    write_text(use.workspace, path, text.replace(old, new))
    return f"replaced {count} occurrence{'s' * (count > 1)} in {path}"


def _find_ignoring_whitespace(text: str, old: str) -> int:
    """Return the number of the line that equals the first line of ``old`` except for whitespace, or 0."""
    first = " ".join(old.strip().split("\n")[0].split())
    for number, line in enumerate(text.split("\n"), 1):
        if first and first == " ".join(line.split()):
            return number
    return 0


# -- file access --


def read_lines(workspace: Path, path: str, offset: int = 1, limit: int = DEFAULT_LINES) -> str:
    """Return lines of a text file, with a note at the end if there are more.

    Args:
        workspace: the directory that bounds what may be read.
        path: relative to the workspace, or absolute inside it.
        offset: the first line, counted from 1.
        limit: the maximum number of lines. ``MAX_CHARS`` may make it fewer.

    Raises:
        OutsideWorkspace: the path leads out of the workspace.
        FileError: the file does not exist or is not text.
    """
    path, first = path or ".", max(offset, 1)
    kept: list[bytes] = []
    size = 0
    with _translate_errors(path), _open_text(workspace, path) as file:
        for line in islice(iter(lambda: file.readline(MAX_LINE_BYTES), b""), first - 1, None):
            kept.append(line)
            size += len(line)
            if len(kept) >= limit or size + MAX_LINE_BYTES > MAX_CHARS:
                break
        has_more = bool(file.read(1))
    text = b"".join(kept).decode("utf-8", "replace")
    if has_more:
        note = f"[there is more: continue with offset={first + len(kept)}]"
        text += note if text.endswith("\n") else f"\n{note}"
    return text


def read_text(workspace: Path, path: str) -> str:
    """Return the whole content of a text file.

    Raises:
        OutsideWorkspace: the path leads out of the workspace.
        FileError: the file does not exist, is not valid UTF-8, or exceeds ``MAX_PATCH_BYTES``.
    """
    path = path or "."
    with _translate_errors(path), _open_text(workspace, path) as file:
        data = file.read(MAX_PATCH_BYTES + 1)
        if len(data) > MAX_PATCH_BYTES:
            raise FileError(f"{path}: is larger than {MAX_PATCH_BYTES} bytes")
        return data.decode()


def write_text(workspace: Path, path: str, text: str) -> int:
    """Write a text file atomically, creating directories as needed, and return its size in bytes.

    Raises:
        OutsideWorkspace: the path leads out of the workspace.
        FileError: the file cannot be written.
    """
    path = path or "."
    with _translate_errors(path):
        data = text.encode()
        target = resolve_path(workspace, path)
        if ".git" in (part.lower() for part in target.relative_to(Path(workspace).resolve()).parts):
            # Git starts the programs that its configuration and its hooks name.
            raise FileError(f"{path}: files of git are changed with git")
        mode = None
        with suppress(FileNotFoundError):
            existing = os.lstat(target).st_mode
            _require_regular(existing, path)
            mode = stat.S_IMODE(existing)
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, data, mode)
    return len(data)


def resolve_path(workspace: Path, path: str) -> Path:
    """Resolve a path and all symbolic links in it.

    Raises:
        OutsideWorkspace: the result is not in the workspace.
    """
    root = os.path.realpath(workspace)
    real = os.path.realpath(os.path.join(root, path))
    # On a symlink loop, realpath gives up and leaves the rest unresolved, links included.
    if os.path.realpath(real) != real or not Path(real).is_relative_to(root):
        raise OutsideWorkspace(f"{path}: outside the workspace")
    return Path(real)


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    """Turn system errors into FileError, without absolute paths of the machine."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:  # a null byte or a lone surrogate, in the path or in the text
        raise FileError(f"{path!r}: {error}") from error


@contextmanager
def _open_text(workspace: Path, path: str) -> Iterator[BinaryIO]:
    with open(resolve_path(workspace, path), "rb", opener=_open_nonblocking) as file:
        status = os.fstat(file.fileno())
        _require_regular(status.st_mode, path)
        if b"\0" in file.read(_BINARY_PROBE_BYTES):
            raise FileError(f"{path}: is a binary file of {status.st_size} bytes, not text")
        file.seek(0)
        yield file


def _open_nonblocking(path: str, flags: int) -> int:
    # Opening a named pipe would otherwise block until it has a writer.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _require_regular(mode: int, path: str) -> None:
    if stat.S_ISDIR(mode):
        raise FileError(f"{path}: Is a directory")
    if not stat.S_ISREG(mode):
        raise FileError(f"{path}: is not a regular file")


def _replace(target: Path, data: bytes, mode: int | None) -> None:
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if mode is not None:
                os.fchmod(file.fileno(), mode)
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
