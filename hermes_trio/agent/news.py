"""What those who wait for news share: the channel through which it comes, and events that are small while nobody waits."""

from __future__ import annotations

import trio

open_news = trio.open_memory_channel[None]
"""Parametrised once: that takes longer than to make a channel."""

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

    async def wait(self) -> None:
        """Return when it is set."""
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()
