"""Random parts of ids. The kernel is asked for many at a time, because asking costs more than all the rest."""

from __future__ import annotations

import os

AT_ONCE = 4_096

_unused = memoryview(b"")


def random_hex(count: int) -> str:
    """Digits that nobody can guess, for so many bytes; none is ever given twice."""
    global _unused  # noqa: PLW0603 - what is left for the next, of one process and one thread
    if len(_unused) < count:
        _unused = memoryview(os.urandom(max(AT_ONCE, count)))
    taken, _unused = _unused[:count], _unused[count:]
    return taken.hex()
