"""The kernel's figures for a process: time used, memory, threads, open files."""

from __future__ import annotations

import os
from pathlib import Path

import trio
from attrs import evolve, frozen

EVERY = 0.2
TICKS = os.sysconf("SC_CLK_TCK")


@frozen
class Usage:
    """What a process has used."""

    cpu: float = 0.0  # seconds since it began
    rss: int = 0  # kilobytes
    threads: int = 0
    files: int = 0

    def highest(self, other: Usage) -> Usage:
        """Return the larger of each figure."""
        return Usage(
            max(self.cpu, other.cpu),
            max(self.rss, other.rss),
            max(self.threads, other.threads),
            max(self.files, other.files),
        )


def parse_stat(text: str) -> float:
    """Return the seconds of processor time in ``/proc/PID/stat``.

    The name of the program may contain any character.
    """
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def parse_status(text: str) -> Usage:
    """Return memory and threads in ``/proc/PID/status``."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return Usage(rss=int(fields["VmRSS"].split()[0]), threads=int(fields["Threads"]))


def look_at(pid: int) -> Usage:
    """Return the current figures of a process."""
    folder = Path("/proc") / str(pid)
    usage = parse_status((folder / "status").read_text())
    files = len(os.listdir(folder / "fd"))
    return evolve(usage, cpu=parse_stat((folder / "stat").read_text()), files=files)


class Sampler:
    """Samples a process periodically and keeps the highest figures."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.before = self.highest = look_at(pid)

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await trio.sleep(EVERY)
            self.look()

    def look(self) -> None:
        """Take a sample."""
        self.highest = self.highest.highest(look_at(self._pid))
