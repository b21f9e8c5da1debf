"""Runs that the server owns: they outlive the request that started them, if their policy says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from attrs import frozen

from hermes_trio.core.outcome import Reason
from hermes_trio.runs.log import Reader
from hermes_trio.runs.presence import Ticket
from hermes_trio.runs.run import Run
from hermes_trio.runs.spec import RunSpec, Services


@frozen
class Hosting:
    """The server's nursery for runs."""

    nursery: trio.Nursery
    services: Services

    async def start(self, order: RunSpec) -> tuple[Run, Ticket]:
        """Start a run; returns when the store knows of it, with the ticket of the one who started it.

        Raises:
            StoreError: the store does not take it. Then there is no run.
        """
        run = Run(self.services, order)
        ticket = run.presence.join()
        # Whoever asked may be gone before the store has answered: then too the run's policy decides, not this request.
        with trio.CancelScope(shield=True):
            await self.nursery.start(run.main)
        return run, ticket


@asynccontextmanager
async def attached(run: Run, ticket: Ticket, holds_back: bool = False) -> AsyncIterator[Reader]:
    """Listen to a live run from its beginning. Leaving gives the ticket back, and the run's policy decides."""
    try:
        with run.log.subscribe(holds_back=holds_back) as reader:
            yield reader
    finally:
        ticket.give_back()


@asynccontextmanager
async def open_hosting(services: Services) -> AsyncIterator[Hosting]:
    """Host runs for as long as the block lasts; what still runs at its end is cancelled, saved and gone."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(services.flusher.run)
        try:
            yield Hosting(nursery, services)
        finally:
            services.registry.stop_all(Reason.SERVER_SHUTDOWN)
        nursery.cancel_scope.cancel()
