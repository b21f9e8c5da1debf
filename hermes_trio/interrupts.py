"""Ctrl-C before anybody listens for it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def plain_interrupts() -> Iterator[None]:
    """Let Ctrl-C end the process at once for the length of a block, unless somebody in it listens for it.

    As an exception it may get lost where modules are imported: that runs code whose exceptions nobody gets, and the server
    would start as if nothing had been said. What somebody in the block has set for good stays.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, before)
