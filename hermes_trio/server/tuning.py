"""Settings of the interpreter and the C library for a process with one event loop and many threads.

With a thousand threads on one core, a full collection froze all streams for seconds. Objects created
at start-up are therefore frozen, collections are rare, and threads request the interpreter less often.
Large blocks of memory, such as request bodies, are returned to the system when they are freed.
"""

from __future__ import annotations

import ctypes
import gc
import sys

from attrs import frozen

THRESHOLDS = (50_000, 20, 100)
SWITCH_SECONDS = 0.02

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of <malloc.h>
MMAP_BYTES = 1_000_000  # of a block that gets its own mapping
TRIM_BYTES = 2_000_000  # of free memory at the end of the heap


@frozen
class Tuning:
    """The changes to the interpreter, with the previous values."""

    thresholds: tuple[int, int, int]
    switch_seconds: float
    frozen_objects: int

    def undo(self) -> None:
        """Put the old values back."""
        gc.unfreeze()
        gc.set_threshold(*self.thresholds)
        sys.setswitchinterval(self.switch_seconds)


def tune_process() -> Tuning:
    """Set up collector, thread switching and allocator.

    Call it once, after the imports and before the first request.
    """
    thresholds, switch_seconds = gc.get_threshold(), sys.getswitchinterval()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    sys.setswitchinterval(SWITCH_SECONDS)
    # glibc maps large blocks at first, but raises its threshold to the size of the largest block
    # that was freed, up to 32 MB. Later blocks of that size come from the heap, where a few small
    # ones behind them keep them from being returned. Other C libraries have no such threshold.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)
        # glibc stops adapting this one, too, and would shrink the heap at every 128 kB.
        mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)
    return Tuning(thresholds, switch_seconds, gc.get_freeze_count())


def return_memory() -> None:
    """Return what the allocator has freed to the system. Blocks for up to a tenth of a second.

    Large blocks are returned anyway. This is for the many small ones that a large body was parsed
    into. Releases the interpreter, so call it in a thread.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)
