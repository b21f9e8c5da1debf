"""A base class for agents that need an asyncio event loop.

Each turn runs one in the agent's thread.

::

    class Parrot(AsyncioAgent):
        async def work(self, turn, emitter):
            await asyncio.sleep(1)
            await emitter.text(f"You said: {turn.text}")

An interrupt cancels the task. The loop is new for each turn and is closed at its end, with all
tasks and generators that are left, so anything bound to a loop, such as an HTTP client, must be
made in ``work``.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self, final

from hermes_trio.agent.emitter import AsyncEmitter, Emitter
from hermes_trio.agent.event_queue import RunEnded
from hermes_trio.agent.interface import TurnRequest
from hermes_trio.core.approvals import Decision
from hermes_trio.core.events import ApprovalRequest, EventOrText, Result


class AsyncioEmitter(AsyncEmitter):
    """Emits the events of an agent that is an asyncio task.

    Every method yields to other tasks, and waits while the client is behind. After the end of the
    run every method raises ``CancelledError``: frameworks turn other exceptions of a tool into an
    answer for the model, and go on.
    """

    async def _put(self, event: EventOrText) -> None:
        await asyncio.sleep(0)
        with _end_as_cancellation():
            while not self._queue.try_put(event):
                await _wait_for_callback(self._queue.when_space)

    async def _ask(self, request: ApprovalRequest) -> Decision:
        with _end_as_cancellation():
            future = self._approvals.open(request.approval_id)
            await self._put(request)
            await _wait_for_callback(future.add_done_callback)
            return future.wait()  # done: does not block


@contextmanager
def _end_as_cancellation() -> Iterator[None]:
    try:
        yield
    except RunEnded as ended:
        raise asyncio.CancelledError("the run is over") from ended


async def _wait_for_callback(subscribe: Callable[[Callable[[], None]], None]) -> None:
    """Wait, in an asyncio task, for a callback from another thread."""
    called, loop = asyncio.Event(), asyncio.get_running_loop()

    def callback() -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            loop.call_soon_threadsafe(called.set)

    subscribe(callback)
    await called.wait()


class _Cancellation:
    """Cancels the agent's task from any thread, whether or not the task exists yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._cancel_task: Callable[[], object] = lambda: None

    def bind_current_task(self) -> None:
        """Let ``cancel`` reach the current task.

        If it was called before, the task is cancelled at once.
        """
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        with self._lock:
            self._cancel_task = lambda: loop.call_soon_threadsafe(task.cancel)
            if self._is_cancelled:
                task.cancel()

    def cancel(self) -> None:
        with self._lock, suppress(RuntimeError):  # the loop is closed: the task has ended
            self._is_cancelled = True
            self._cancel_task()


class AsyncioAgent(ABC):
    """Derive from this and write ``work``; the server calls the other methods."""

    _cancellation: _Cancellation

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        """Set up here, not in ``__init__``, so that subclasses need not call ``super().__init__``."""
        agent = super().__new__(cls)
        object.__setattr__(agent, "_cancellation", _Cancellation())  # works for frozen classes too
        return agent

    @abstractmethod
    async def work(self, turn: TurnRequest, emitter: AsyncioEmitter) -> Result | str | None:
        """Do the turn, in a task of an event loop of its own.

        The return value is that of an agent.
        """

    @final
    def run(self, turn: TurnRequest, emitter: Emitter) -> Result | str | None:
        """Run the event loop in this thread until the work has ended and everything left is cleaned up."""
        with asyncio.Runner() as runner:
            return runner.run(self._cancellable(turn, emitter.as_type(AsyncioEmitter)))

    @final
    def interrupt(self, _reason: str) -> None:
        """Cancel the work."""
        self._cancellation.cancel()

    async def _cancellable(self, turn: TurnRequest, emitter: AsyncioEmitter) -> Result | str | None:
        self._cancellation.bind_current_task()
        await asyncio.sleep(0)  # an earlier cancellation must take effect before the work begins
        return await self.work(turn, emitter)
