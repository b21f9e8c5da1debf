"""Tasks beside the tracker, in the nursery of their run; they end when the tracker does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

Work = Callable[..., Awaitable[None]]


class Helpers:
    """A nursery of their own would do the same; most runs have none, and a nursery is dear."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._at_work: set[trio.CancelScope] = set()
        self._is_over = False

    def start(self, work: Work, *parts: object) -> None:
        """Let somebody do something."""
        self._nursery.start_soon(self._do, work, *parts)

    def stop(self) -> None:
        """Cancel them all, and those that have not begun."""
        self._is_over = True
        for scope in self._at_work:
            scope.cancel()

    async def _do(self, work: Work, *parts: object) -> None:
        if self._is_over:
            return
        with trio.CancelScope() as scope:
            self._at_work.add(scope)
            try:
                await work(*parts)
            finally:
                self._at_work.remove(scope)
