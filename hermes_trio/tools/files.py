"""Reading and writing text files, inside a workspace and nowhere else.

The rule about places is checked on the real path, after every symbolic link was followed. It guards against a model
that goes astray. It cannot guard against a process that swaps links while we look, and need not: such a process runs as
the same user and can open those files itself.
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

from hermes_trio.tools.base import ToolError

LINES = 2_000
CHARACTERS = 200_000
LONGEST_LINE = 65_536  # a longer one counts as several, so that no line is ever read whole
LARGEST = 10_000_000  # bytes of a file that is changed in place
_PROBED = 8_192


class FileError(ToolError):
    """A file cannot be read or written. The text is for the model and the user, and names the path as they gave it."""


class OutsideWorkspace(FileError):
    """The path leads out of the workspace."""


def read_file(workspace: Path, path: str, offset: int = 1, limit: int = LINES) -> str:
    """Lines of a text file.

    Args:
        workspace: the folder that bounds what may be read.
        path: relative to the workspace, or absolute inside it.
        offset: the first line, counted from 1.
        limit: how many lines at most. Very long lines make it fewer.

    Raises:
        OutsideWorkspace: the path leads out.
        FileError: there is no such file, or it is not text.
    """
    path, first = path or ".", max(offset, 1)
    with _told(path), _opened(resolved(workspace, path), path) as file:
        _refuse_binary(file, path)
        lines = _bounded(islice(_lines(file), first - 1, first - 1 + max(limit, 1)))
        text = b"".join(lines).decode("utf-8", "replace")
        rest = file.read(1)
    if rest:
        note = f"[there is more: go on with offset={first + len(lines)}]"
        text += note if text.endswith("\n") else f"\n{note}"
    return text


def read_whole(workspace: Path, path: str) -> str:
    """A text file as it is, for one who will write it again.

    Raises:
        OutsideWorkspace: the path leads out.
        FileError: there is no such file, it is not text, or it is too large.
    """
    path = path or "."
    with _told(path), _opened(resolved(workspace, path), path) as file:
        _refuse_binary(file, path)
        data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise FileError(f"{path}: is larger than {LARGEST} bytes")
        return data.decode()


def write_file(workspace: Path, path: str, text: str) -> int:
    """Write a text file as a whole: a reader sees the old one or the new one. Folders are made as needed.

    Returns:
        The size in bytes.

    Raises:
        OutsideWorkspace: the path leads out.
        FileError: it cannot be written there.
    """
    path = path or "."
    with _told(path):
        data = text.encode()
        target = resolved(workspace, path)
        mode = _mode_to_keep(target, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, data, mode)
    return len(data)


def resolved(workspace: Path, path: str) -> Path:
    """The real place that a path means, with no link left in it.

    Raises:
        OutsideWorkspace: it is not in the workspace.
    """
    root = os.path.realpath(workspace)
    real = os.path.realpath(os.path.join(root, path))
    # In a circle of links realpath gives up and leaves the rest as it is, links included.
    if os.path.realpath(real) != real or not Path(real).is_relative_to(root):
        raise OutsideWorkspace(f"{path}: outside of the workspace")
    return Path(real)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Errors of the system in our words: without the machine's own paths."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:  # a zero byte or half a character, in the path or in the text
        raise FileError(f"{path!r}: {error}") from error


@contextmanager
def _opened(place: Path, path: str) -> Iterator[BinaryIO]:
    with open(place, "rb", opener=_open) as file:
        _refuse_special(os.fstat(file.fileno()).st_mode, path)
        yield file


def _open(place: str, flags: int) -> int:
    # Not blocking: to open a named pipe would wait for its writer.
    return os.open(place, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _refuse_special(mode: int, path: str) -> None:
    if stat.S_ISDIR(mode):
        raise FileError(f"{path}: Is a directory")
    if not stat.S_ISREG(mode):
        raise FileError(f"{path}: is not a regular file")


def _refuse_binary(file: BinaryIO, path: str) -> None:
    if b"\0" in file.read(_PROBED):
        raise FileError(f"{path}: is a binary file of {os.fstat(file.fileno()).st_size} bytes, not text")
    file.seek(0)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(LONGEST_LINE):
        yield line


def _bounded(lines: Iterator[bytes]) -> list[bytes]:
    """The first lines, at least one, that together are not too much for a model."""
    kept: list[bytes] = []
    size = 0
    for line in lines:
        kept.append(line)
        size += len(line)
        if size + LONGEST_LINE > CHARACTERS:
            break
    return kept


def _mode_to_keep(target: Path, path: str) -> int | None:
    """The rights of the file that is about to be replaced."""
    try:
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        return None
    _refuse_special(mode, path)
    return stat.S_IMODE(mode)


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
