"""Processor time of a process and everything that it has started."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def parse_times(text: str) -> tuple[int, float]:
    """Return the parent in ``/proc/PID/stat``, and the seconds used, with those of children that have ended.

    The name of the program may contain any character.
    """
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), sum(map(int, fields[11:15])) / TICKS


def sum_tree(root: int, processes: Mapping[int, tuple[int, float]]) -> float:
    """Return the seconds of a process and all of its descendants, from parents and seconds by process."""
    children = defaultdict[int, list[int]](list)
    for pid, (parent, _) in processes.items():
        children[parent].append(pid)
    total, waiting = 0.0, [root]
    while waiting:
        pid = waiting.pop()
        total += processes[pid][1] if pid in processes else 0.0
        waiting += children[pid]
    return total


def tree_seconds(root: int) -> float:
    """Return the processor seconds that a process and its descendants have used so far."""
    found: dict[int, tuple[int, float]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                found[int(folder.name)] = parse_times((folder / "stat").read_text())
            except OSError:  # it ended while we looked
                continue
    return sum_tree(root, found)
