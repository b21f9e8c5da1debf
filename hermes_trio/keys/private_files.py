"""Files that only their owner can read: read, created once, and replaced as a whole."""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hermes_trio.keys.errors import KeysError


def read_private(path: Path) -> str:
    """Return the text of a file.

    Raises:
        KeysError: other users have access to it, or it cannot be read.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            # The open file is checked, not the path, which could be replaced in between.
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise KeysError(
                    f"{path}: other users have access to this key file; run: chmod 600 {shlex.quote(str(path))}"
                )
            return file.read()
    except OSError as error:
        raise KeysError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise KeysError(f"{path}: is not UTF-8 text") from None


def create_private(path: Path, text: str) -> None:
    """Write a new file atomically, or raise ``FileExistsError``."""
    with _temporary(path, text) as name:
        os.link(name, path)  # unlike a rename, a link never replaces what is there


def replace_private(path: Path, text: str) -> None:
    """Replace a file atomically: a reader sees the old text or the new one. The owner stays.

    Raises:
        OSError: it cannot be written; then it is unchanged.
    """
    with _temporary(path, text) as name:
        with suppress(FileNotFoundError):
            # Written by root, it must still be readable by the user that the server runs as.
            before = path.stat()
            if before.st_uid != os.geteuid():
                os.chown(name, before.st_uid, before.st_gid)
        os.rename(name, path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


@contextmanager
def locked_directory(path: Path) -> Iterator[None]:
    """Let only one process at a time change the files of a directory that it locks this way."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _temporary(path: Path, text: str) -> Iterator[str]:
    """Write a text to a file beside a path, made with mode 600, and delete it if it is still there."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)
