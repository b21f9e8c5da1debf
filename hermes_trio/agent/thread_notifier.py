"""Call functions in the Trio thread, with one wake-up of Trio for all of them.

Waking Trio from another thread costs a system call, during which the thread gives up the interpreter lock and has to
get it back. With many agents there is nearly always a wake-up pending already; later callers only add to its list.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import trio

Callback = Callable[[], None]


class ThreadNotifier:
    """Schedules callbacks in the Trio thread. Create it in a Trio task; ``notify`` is thread-safe."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._lock = threading.Lock()
        self._callbacks: list[Callback] = []

    def notify(self, callback: Callback) -> None:
        """Have a callback called soon in the Trio thread. The callback must not raise.

        Raises:
            trio.RunFinishedError: Trio is not running any more.
        """
        with self._lock:
            self._callbacks.append(callback)
            if len(self._callbacks) > 1:
                return  # the pending wake-up calls this one too
        try:
            self._token.run_sync_soon(self._call_all)
        except trio.RunFinishedError:
            # Reset, so that the next caller schedules a wake-up and learns the same.
            with self._lock:
                self._callbacks = []
            raise

    def _call_all(self) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


_notifier: trio.lowlevel.RunVar[ThreadNotifier] = trio.lowlevel.RunVar("hermes_trio.thread_notifier")


def current_notifier() -> ThreadNotifier:
    """Return the notifier of the current Trio run. All agents share it."""
    try:
        return _notifier.get()
    except LookupError:
        notifier = ThreadNotifier()
        _notifier.set(notifier)
        return notifier
