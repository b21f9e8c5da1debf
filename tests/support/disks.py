"""Disks without room."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system with little room, in memory. Needs to be root.

    Raises:
        PermissionError: nobody may mount here.
    """
    folder.mkdir(parents=True)
    with ExitStack() as undo:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", str(folder)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            raise PermissionError("cannot mount")
        undo.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)
        yield folder


def fill_disk(folder: Path) -> Path:
    """Leave no room on the disk of a folder; return the file to delete."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        size = shutil.disk_usage(folder).free
        while size >= 4096:
            try:
                os.posix_fallocate(file.fileno(), 0, file.tell() + size)
                file.seek(0, os.SEEK_END)
            except OSError:
                size //= 2
            else:
                size = shutil.disk_usage(folder).free
    return ballast
