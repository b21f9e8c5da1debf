"""Who owns a run: a request, for as long as its client reads, or the server.

A run that belongs to a request ends with it. A run that belongs to the server outlives the request that started it, if
its disconnect policy says so, and that request is one of its subscribers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from attrs import frozen

from hermes_trio.core.outcome import Reason
from hermes_trio.runs.log import Subscriber
from hermes_trio.runs.presence import Ticket
from hermes_trio.runs.run import Run
from hermes_trio.runs.spec import RunSpec, Services


@asynccontextmanager
async def owned_run(services: Services, spec: RunSpec) -> AsyncIterator[Subscriber]:
    """Run an agent for as long as the block lasts, in a nursery of its own, and subscribe to it.

    The subscriber applies back-pressure. Leaving the block ends the run, unless it has ended, and waits for that in
    spite of cancellation; the run bounds how long its end takes.
    """
    run = Run(services, spec, has_owner=True)
    async with trio.open_nursery() as nursery:
        with run.log.subscribe(applies_backpressure=True) as subscriber:
            nursery.start_soon(run.main)
            try:
                yield subscriber
            except Exception:
                run.stop(Reason.SERVER_ERROR)
                raise
            finally:
                if not run.ended.is_set():
                    run.stop(Reason.CLIENT_DISCONNECTED)


@frozen
class Hosting:
    """The server's nursery for runs."""

    nursery: trio.Nursery
    services: Services

    async def start(self, spec: RunSpec) -> tuple[Run, Ticket]:
        """Start a run; return when the store knows of it, with the ticket of the request that started it.

        Raises:
            StoreError: the store does not take it. Then there is no run.
        """
        run = Run(self.services, spec)
        ticket = run.presence.join()
        # The client may leave before the store has answered: then too the run's policy decides, not this request.
        with trio.CancelScope(shield=True):
            await self.nursery.start(run.main)
        return run, ticket


@asynccontextmanager
async def attached(run: Run, ticket: Ticket, applies_backpressure: bool = False) -> AsyncIterator[Subscriber]:
    """Subscribe to a live run from its beginning. Leaving gives the ticket back, and the run's policy decides."""
    try:
        with run.log.subscribe(applies_backpressure=applies_backpressure) as subscriber:
            yield subscriber
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
