"""A run that belongs to a block of code: to an answer that is streamed, or is being collected."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType

import trio

from hermes_trio.core.outcome import Reason
from hermes_trio.runs.log import Reader
from hermes_trio.runs.run import Run
from hermes_trio.runs.spec import RunSpec, Services


class OwnedRun:
    """An async context manager: the run lives in a nursery of the block, and ends with it."""

    def __init__(self, services: Services, order: RunSpec) -> None:
        self._services, self._order = services, order
        self._manager: AbstractAsyncContextManager[trio.Nursery]
        self._run: Run
        self._reader: Reader

    async def __aenter__(self) -> Reader:
        """Start the run."""
        self._run = Run(self._services, self._order, has_owner=True)
        self._reader = self._run.log.subscribe(holds_back=True)
        self._manager = trio.open_nursery()
        nursery = await self._manager.__aenter__()
        nursery.start_soon(self._run.main)
        return self._reader

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the run, unless it is over, and wait for that, in spite of cancellation."""
        try:
            if not self._run.is_over:
                is_fault = isinstance(error, Exception)
                reason = Reason.SERVER_ERROR if is_fault else Reason.CLIENT_DISCONNECTED
                await self._end(reason)  # noqa: ASYNC102 - it shields itself, and the run bounds its own end
        finally:
            self._reader.close()
            # The nursery gets no error of the block: it would wrap it in a group on its way to the caller.
            await self._manager.__aexit__(None, None, None)  # noqa: ASYNC102 - only the run's last steps are left

    async def _end(self, reason: Reason) -> None:
        self._run.stop(reason)
        with trio.CancelScope(shield=True):
            await self._run.ended.wait()
