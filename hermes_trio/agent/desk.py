"""Where the questions of an agent wait for their answers.

Any thread may ask, and a Trio task may; answers come from the Trio thread. Whoever still waits when the run is over is
told so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

import trio

from hermes_trio.agent.event_queue import RunEnded
from hermes_trio.core.approvals import Decision


class Waiting:
    """One question on its way."""

    def __init__(self) -> None:
        self._decision: Future[Decision] = Future()

    def give(self, decision: Decision) -> None:
        """Answer it."""
        self._decision.set_result(decision)

    def give_up(self) -> None:
        """There will be no answer."""
        self._decision.set_exception(RunEnded())

    def wait(self) -> Decision:
        """The answer. For threads.

        Raises:
            RunEnded: the run is over.
        """
        return self._decision.result()

    async def wait_in_trio(self) -> Decision:
        """The same, for tasks."""
        answered = trio.Event()
        self.when_over(answered.set)
        await answered.wait()
        return self._decision.result()

    def when_over(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` when ``wait`` would no longer wait: at once, or later from the Trio thread."""
        self._decision.add_done_callback(lambda _: tell())


class Desk:
    """The open questions of one run, by id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, Waiting] = {}
        self._is_closed = False

    def open(self, approval_id: str) -> Waiting:
        """Begin to wait.

        Raises:
            RunEnded: the run is over.
        """
        with self._lock:
            if self._is_closed:
                raise RunEnded
            waiting = self._waiting[approval_id] = Waiting()
            return waiting

    def give(self, approval_id: str, decision: Decision) -> None:
        """Answer a question. Nobody may wait for it any more: then it goes nowhere."""
        with self._lock, suppress(KeyError):
            self._waiting.pop(approval_id).give(decision)

    def close(self) -> None:
        """The run is over."""
        with self._lock:
            self._is_closed = True
            while self._waiting:
                self._waiting.popitem()[1].give_up()
