"""Trio made repeatable.

A seed decides the order in which tasks run, threads run on the spot, and steps are counted.

The switch for the order is Trio's own, made for Hypothesis. Threads run on the spot only here,
where the order of tasks is what is tried; the agents of these tests are tasks, and only their
making would take a thread. Real threads are tried in ``test_agents.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
import trio
from trio._core import _run

T = TypeVar("T")
STEPS_BETWEEN = 3  # between two actions


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


class StepTrigger(trio.abc.Instrument):
    """Counts the steps of all tasks and runs an action right after the n-th one, and further actions a few steps later.

    A task that has made a step stands at a checkpoint, so acting after every step covers every
    checkpoint.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._actions: dict[int, Callable[[], None]] = {}
        self._has_fired = False

    def arm(self, at: int, *actions: Callable[[], None]) -> None:
        """Restart the count, and act after so many steps."""
        self.steps, self._has_fired = 0, False
        self._actions = {
            at + STEPS_BETWEEN * number: action for number, action in enumerate(actions)
        }

    def disarm(self) -> bool:
        """Disarm; return whether an action ran."""
        self._actions = {}
        return self._has_fired

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """One more step."""
        self.steps += 1
        if self.steps in self._actions:
            self._has_fired = True
            self._actions[self.steps]()
