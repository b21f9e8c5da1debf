"""Interpreter settings for a process with one event loop and many threads.

With a thousand threads on one core a full collection froze all streams for seconds. So the objects
of the start are frozen, collections are rare, and threads request the interpreter less often.
"""

from __future__ import annotations

import gc
import sys

from attrs import frozen

THRESHOLDS = (50_000, 20, 100)
SWITCH_SECONDS = 0.02


@frozen
class Tuning:
    """What was changed, with the values from before."""

    thresholds: tuple[int, int, int]
    switch_seconds: float
    frozen_objects: int

    def undo(self) -> None:
        """Put the old values back."""
        gc.unfreeze()
        gc.set_threshold(*self.thresholds)
        sys.setswitchinterval(self.switch_seconds)


def tune_process() -> Tuning:
    """Set up collector and thread switching.

    Call it once, after the imports and before the first request.
    """
    thresholds, switch_seconds = gc.get_threshold(), sys.getswitchinterval()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    sys.setswitchinterval(SWITCH_SECONDS)
    return Tuning(thresholds, switch_seconds, gc.get_freeze_count())
