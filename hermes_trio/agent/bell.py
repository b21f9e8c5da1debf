"""One bell for all agents in threads.

To wake Trio from a thread takes a system call, in which the thread lets go of the interpreter and has to get hold of it again. With many
agents there is nearly always one that has rung already: the others only say who they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import trio

Tell = Callable[[], None]


class Bell:
    """One for each run of Trio. Made in a Trio task; rung by anybody, at any time."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._lock = threading.Lock()
        self._rung: list[Tell] = []

    def ring(self, tell: Tell) -> None:
        """Have something called in the Trio thread, soon. It must not raise.

        Raises:
            trio.RunFinishedError: there is no Trio any more.
        """
        with self._lock:
            self._rung.append(tell)
            if len(self._rung) > 1:
                return
        try:
            self._token.run_sync_soon(self._answer)
        except trio.RunFinishedError:
            self._answer_nobody()
            raise

    def _answer_nobody(self) -> None:
        """So that the next one rings again, and hears so himself."""
        with self._lock:
            self._rung = []

    def _answer(self) -> None:
        with self._lock:
            rung, self._rung = self._rung, []
        for tell in rung:
            tell()


_bell: trio.lowlevel.RunVar[Bell] = trio.lowlevel.RunVar("hermes_trio.bell")


def current_bell() -> Bell:
    """The bell of this run of Trio."""
    try:
        return _bell.get()
    except LookupError:
        bell = Bell()
        _bell.set(bell)
        return bell
