"""For agents that need a running asyncio loop: each turn gets one, in the thread that the agent has anyway.

::

    class Parrot(AsyncioAgent):
        async def work(self, turn, say):
            await asyncio.sleep(1)
            await say.text(f"You said: {turn.text}")

Called off means cancelled here, as everywhere in asyncio. The loop is new for each turn and is closed at its end, with
all tasks and generators that are left: what is bound to a loop, such as an HTTP client, must be made in ``work``.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self, final

from hermes_trio.agent.contract import TurnRequest
from hermes_trio.agent.event_queue import RunEnded
from hermes_trio.agent.port import AsyncPort, Port
from hermes_trio.core.approvals import Decision
from hermes_trio.core.events import ApprovalRequest, EventOrText, Result


class AsyncioPort(AsyncPort):
    """For asyncio tasks. Every method lets other tasks run, and waits while the reader is behind.

    When the run is over, every method raises ``CancelledError``: frameworks turn other exceptions of a tool into an
    answer for the model, and go on.
    """

    async def _put(self, event: EventOrText) -> None:
        await asyncio.sleep(0)
        with _end_as_cancellation():
            while not self._queue.try_put(event):
                await _told_by(self._queue.when_space)

    async def _ask(self, wish: ApprovalRequest) -> Decision:
        with _end_as_cancellation():
            waiting = self._desk.open(wish.approval_id)
            await self._put(wish)
            await _told_by(waiting.when_over)
            return waiting.wait()  # is over: does not block


@contextmanager
def _end_as_cancellation() -> Iterator[None]:
    try:
        yield
    except RunEnded as ended:
        raise asyncio.CancelledError("the run is over") from ended


async def _told_by(subscribe: Callable[[Callable[[], None]], None]) -> None:
    """Wait, as a task, for something that another thread tells."""
    told, loop = asyncio.Event(), asyncio.get_running_loop()

    def tell() -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(told.set)

    subscribe(tell)
    await told.wait()


class _Cancelling:
    """Carries a cancellation from any thread to the task, whether that exists already or not yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_called_off = False
        self._cancel: Callable[[], object] = _nothing

    def of_this_task(self) -> None:
        """From now on a cancellation reaches the running task; one that came before does so at once."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        with self._lock:
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            if self._is_called_off:
                task.cancel()

    def call_off(self) -> None:
        with self._lock, suppress(RuntimeError):  # the loop is closed: the task has ended
            self._is_called_off = True
            self._cancel()


def _nothing() -> None:
    """There is no task yet."""


class AsyncioAgent(ABC):
    """Derive from this and write ``work``. The rest is what the server calls."""

    _cancelling: _Cancelling

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        """Not ``__init__``: an agent that has one of its own need not think of this."""
        agent = super().__new__(cls)
        object.__setattr__(agent, "_cancelling", _Cancelling())  # works for frozen classes too
        return agent

    @abstractmethod
    async def work(self, turn: TurnRequest, say: AsyncioPort) -> Result | str | None:
        """Do the turn, as a task of a loop of its own. What to return: see :class:`~.contract.Agent`."""

    @final
    def run(self, turn: TurnRequest, say: Port) -> Result | str | None:
        """Run the loop in this thread until the work is done or called off, and everything left has been cleaned up."""
        with asyncio.Runner() as runner:
            return runner.run(self._cancellable(turn, say.in_form(AsyncioPort)))

    @final
    def interrupt(self, _reason: str) -> None:
        """Cancel the work."""
        self._cancelling.call_off()

    async def _cancellable(self, turn: TurnRequest, say: AsyncioPort) -> Result | str | None:
        self._cancelling.of_this_task()
        await asyncio.sleep(0)  # a cancellation that came before must come before the work
        return await self.work(turn, say)
