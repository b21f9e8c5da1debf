"""What those who wait for news share: the channel through which it comes, and events that are small while nobody waits."""

from __future__ import annotations

from collections.abc import Callable

import trio

Ends = tuple[trio.MemorySendChannel[None], trio.MemoryReceiveChannel[None]]

open_news: Callable[[int], Ends] = trio.open_memory_channel
"""A channel that carries nothing but news. Not parametrised: for each call that takes as long as to make a channel."""

NOBODY_WAITS = trio.Event()
"""In place of an event as long as there is no need of one."""
NOBODY_WAITS.set()


class Sign:
    """An event that most often nobody waits for: one of Trio's is made when somebody does."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: trio.Event | None = None

    def set(self) -> None:
        """Let all go on who wait, now or later."""
        if self._event is not None:
            self._event.set()
        self._event = NOBODY_WAITS

    def is_set(self) -> bool:
        """Whether it was."""
        return self._event is NOBODY_WAITS

    def beckon(self) -> None:
        """Let all go on who wait now; whoever comes later waits for the next time."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Return when it is set."""
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()


class News:
    """A memory channel with room for one piece of news and for one who listens.

    Trio's own has queues for any number of both, which take two kilobytes; every reader of a run has such a channel, and every
    token comes as news.
    """

    __slots__ = ("_is_closed", "_is_there", "_listener")

    def __init__(self) -> None:
        self._listener: trio.lowlevel.Task | None = None
        self._is_there = self._is_closed = False

    def tell(self) -> None:
        """There is news; more of it before somebody listens is the same."""
        if not self._is_closed:
            self._is_there = True
            if self._listener is not None:
                self._wake(self._listener)

    def close(self) -> None:
        """There will be none any more. What is there can still be received."""
        self._is_closed = True
        if self._listener is not None:
            self._wake(self._listener)

    def _wake(self, listener: trio.lowlevel.Task) -> None:
        trio.lowlevel.reschedule(listener)
        self._listener = None

    async def receive(self) -> None:
        """Return when there is news.

        Raises:
            trio.EndOfChannel: there will be none.
            trio.BusyResourceError: somebody else listens.
        """
        if self._is_there or self._is_closed:
            await trio.lowlevel.checkpoint()
        elif self._listener is not None:
            raise trio.BusyResourceError("somebody else listens")
        else:
            self._listener = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._stop_listening)
        if not self._is_there:
            raise trio.EndOfChannel
        self._is_there = False

    def _stop_listening(self, _: object) -> trio.lowlevel.Abort:
        self._listener = None
        return trio.lowlevel.Abort.SUCCEEDED
