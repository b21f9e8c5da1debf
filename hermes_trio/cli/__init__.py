"""The command line: ``hermes-trio serve``, ``chat``, ``config``, ``doctor`` and ``store``. Internal.

This module imports nothing heavy, so that Ctrl-C works while the rest is imported.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process, and exit."""
    with default_sigint():
        from hermes_trio.cli.commands import run  # noqa: PLC0415  # not before SIGINT has its default action
    sys.exit(run(sys.argv[1:]))


@contextmanager
def default_sigint() -> Iterator[None]:
    """Let Ctrl-C end the process at once inside a block, unless the block installs its own handler.

    ``KeyboardInterrupt`` may get lost while modules are imported: an import runs code whose
    exceptions are swallowed, and the server would start as if there had been no signal. A handler
    that the block installs stays installed.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, before)
