"""Who listens on a port, as far as this user may see it. Blocks: call it in a thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_LISTENING = "0A"


def listener(port: int) -> str:
    """The process that listens on a port, such as ``nginx (pid 17)``; "" if it cannot be seen."""
    wanted = {f"socket:[{inode}]" for inode in _inodes(port)}
    for folder in _PROC.iterdir() if wanted else ():
        if folder.name.isdigit() and not wanted.isdisjoint(_open_files(folder)):
            return f"{_name(folder)} (pid {folder.name})"
    return ""


def _inodes(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if int(fields[1].rpartition(":")[2], 16) == port and fields[3] == _LISTENING:
                    yield fields[9]


def _open_files(folder: Path) -> Iterator[str]:
    with suppress(OSError):  # it has ended, or is not ours to look at
        for link in (folder / "fd").iterdir():
            with suppress(OSError):
                yield str(link.readlink())


def _name(folder: Path) -> str:
    with suppress(OSError):
        return (folder / "comm").read_text().strip()
    return "a process"
