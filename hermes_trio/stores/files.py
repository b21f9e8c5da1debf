"""The files of a store: made for their owner only, and held by one process. All of it blocks: call it in a thread."""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack
from pathlib import Path

from hermes_trio.stores.base import StoreError

_OWNER_FILE = 0o600
_OWNER_DIRECTORY = 0o700
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


def make_directory(path: Path) -> None:
    """Make a directory and the missing ones above it, each for the owner only."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(_OWNER_DIRECTORY, exist_ok=True)
        _sync(folder.parent)


def make_file(path: Path) -> None:
    """Make the file if need be and give it to its owner alone, before SQLite can make it readable to others."""
    descriptor = os.open(path, _FLAGS, _OWNER_FILE)
    try:
        os.fchmod(descriptor, _OWNER_FILE)
    finally:
        os.close(descriptor)
    _sync(path.parent)


def claim(path: Path) -> int:
    """Hold the lock file beside a database; the claim lasts until the descriptor is closed.

    The lock file stays behind on purpose: removing it would let two processes hold two different ones.

    Raises:
        StoreError: someone else holds it, even within this process.
    """
    with ExitStack() as undo:
        descriptor = os.open(path.with_name(f"{path.name}.lock"), _FLAGS, _OWNER_FILE)
        undo.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"{path} is already open: one process at a time may use an SQLite store"
            ) from None
        undo.pop_all()
        return descriptor


def _sync(directory: Path) -> None:
    # A file that was just made survives a power cut only once its name in the directory does.
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
