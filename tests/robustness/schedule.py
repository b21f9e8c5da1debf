"""Trio made repeatable: a seed decides the order in which tasks run, threads run on the spot, and steps are counted.

The switch for the order is Trio's own, made for Hypothesis. Threads run on the spot only here, where the order of tasks
is what is tried; the agents of these tests are tasks, and only their making would take a thread. Real threads are tried
in ``test_agents.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
import trio
from trio._core import _run

T = TypeVar("T")


def shuffle(seed: int) -> None:
    """From here on the tasks run in an order that follows from the seed."""
    _run._r.seed(seed)


@contextmanager
def repeatable(seed: int = 0) -> Iterator[None]:
    """Everything that Trio does in the block follows from the seed."""
    state = _run._r.getstate()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
        patch.setattr(trio.to_thread, "run_sync", _on_the_spot)
        shuffle(seed)
        yield
    _run._r.setstate(state)


async def _on_the_spot(
    work: Callable[..., T],
    *args: Any,
    thread_name: str | None = None,
    abandon_on_cancel: bool = False,
    limiter: trio.CapacityLimiter | None = None,
) -> T:
    await trio.lowlevel.checkpoint()
    return work(*args)


async def steps(count: int) -> None:
    """Let the others run so often."""
    for _ in range(count):
        await trio.lowlevel.checkpoint()


class Knife(trio.abc.Instrument):
    """Counts the steps of all tasks, and does something right after one of them.

    A task that has made a step stands at a checkpoint, so to strike after every step is to cut at every checkpoint.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._at = 0
        self._strike: Callable[[], None] | None = None

    def arm(self, at: int, strike: Callable[[], None]) -> None:
        """Count from nought, and strike after so many steps."""
        self.steps, self._at, self._strike = 0, at, strike

    def disarm(self) -> bool:
        """Put it away; returns whether it struck."""
        struck = self._strike is None
        self._at, self._strike = 0, None
        return struck

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """One more step."""
        self.steps += 1
        if self._strike is not None and self.steps == self._at:
            strike, self._strike = self._strike, None
            strike()
