"""Ctrl-C before anybody listens for it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def plain_interrupts() -> Iterator[None]:
    """Let Ctrl-C end the process at once for the length of a block in which modules are imported.

    As an exception it may get lost there: imports run code whose exceptions nobody gets, and the server would start as
    if nothing had been said.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
