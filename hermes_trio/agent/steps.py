"""Agents that are Trio tasks, step by step.

A task says what it says in one turn of its own, and then waits for something. That is the moment to send it: all of it in one piece, and
without a turn of any other task. Nothing of Trio's tells when a task lets go, but whatever it awaits passes through here.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Stepping(Protocol):
    """Somebody who wants to know when it is an agent's turn. Neither method may raise."""

    def begin_step(self) -> None:
        """It is."""
        ...

    def end_step(self) -> None:
        """It is over, and the agent waits for something; nobody tells that its last step is over."""
        ...


@coroutine
def in_steps(agent: Coroutine[Any, Any, T], stepping: Stepping) -> Generator[Any, Any, T]:
    """Await an agent and tell of every step that it takes. What it yields, gets and raises is passed on as it is."""
    step, value = agent.send, None
    while True:
        stepping.begin_step()
        try:
            wait = step(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what a coroutine returns
        stepping.end_step()
        # Whatever was thrown has frames, and must not be kept while the agent waits.
        step, value = agent.send, None
        try:
            value = yield wait
        except BaseException as error:  # noqa: BLE001, ASYNC103 - a cancellation among others, and the agent's to handle
            step, value = agent.throw, error
