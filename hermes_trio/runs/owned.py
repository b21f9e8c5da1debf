"""A run that belongs to a block of code: to an answer that is streamed, or is being collected."""

from __future__ import annotations

from types import TracebackType

import trio

from hermes_trio.core.outcome import Reason
from hermes_trio.runs.log import Reader
from hermes_trio.runs.order import Order, Services
from hermes_trio.runs.run import Run


class OwnedRun:
    """An async context manager: the run ends with the block, whoever leaves first. As a generator it would be larger."""

    def __init__(self, services: Services, order: Order) -> None:
        self._services, self._order = services, order
        self._nursery = trio.open_nursery()
        self._run: Run
        self._reader: Reader

    async def __aenter__(self) -> Reader:
        """Start the run."""
        self._run = Run(self._services, self._order, has_owner=True)
        self._reader = self._run.log.subscribe(holds_back=True)
        nursery = await self._nursery.__aenter__()
        nursery.start_soon(self._run.main)
        return self._reader

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """End it, unless it is over; if the block was cancelled, so is the nursery."""
        if isinstance(error, Exception):
            self._run.stop(Reason.SERVER_ERROR)
        elif error is None and not self._run.is_over:
            self._run.stop(Reason.CLIENT_DISCONNECTED)
        try:
            return await self._nursery.__aexit__(kind, error, trace)  # noqa: ASYNC102 - the run bounds its own end
        finally:
            self._reader.close()
