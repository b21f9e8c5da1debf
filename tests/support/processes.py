"""Inspect processes and descriptors, without sleeping."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TIMEOUT = 5.0  # seconds after which a test that hangs fails


def has_ended(pid: int, seconds: float = TIMEOUT) -> bool:
    """Return whether a process ends within some seconds, as soon as it does."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], seconds)[0])
    finally:
        os.close(pidfd)


def children() -> set[str]:
    """Return the child processes that have not been waited for, dead or alive."""
    found: set[str] = set()
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(
            FileNotFoundError, ProcessLookupError
        ):  # that thread has just ended; its children are another's
            found.update(listed.read_text().split())
    return found


def descriptors() -> set[str]:
    """Return the open file descriptors of this process, and what they refer to."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that listed them
            found.add(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
    return found


@contextmanager
def nothing_left() -> Iterator[None]:
    """Check that the block leaves no descriptor and no child process behind."""
    files, processes = descriptors(), children()
    yield
    assert not descriptors() - files
    assert not children() - processes


@contextmanager
def in_thread(work: Callable[[], object]) -> Iterator[None]:
    """Run a function in a thread beside the block, and require it to end soon after."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join(TIMEOUT)
    assert not thread.is_alive()
