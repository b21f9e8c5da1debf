"""The nursery of a run: that of the request that started it, or the server's.

A run in a request's nursery ends with the request. A run in the server's nursery may outlive the
request that started it, if its disconnect policy says so; that request is then one of its
subscribers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from attrs import frozen

from hermes_trio.core.outcome import Reason
from hermes_trio.runs.approvals import OpenQuestion
from hermes_trio.runs.disconnects import ClientHandle
from hermes_trio.runs.log import ChangeReader, Subscriber
from hermes_trio.runs.questions import QuestionReader
from hermes_trio.runs.run import Run
from hermes_trio.runs.spec import RunSpec, Services


@asynccontextmanager
async def request_scoped_run(
    services: Services, spec: RunSpec, begun: Run | None = None
) -> AsyncIterator[Subscriber]:
    """Run an agent for as long as the block lasts, in a nursery of its own, and subscribe to it.

    ``begun`` is the run if the store knows of it already. The subscriber applies back-pressure.
    Leaving the block ends the run, unless it has ended, and waits for that in spite of
    cancellation; the run bounds how long its end takes.
    """
    run = begun or Run(services, spec, has_owner=True)
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
class RunSupervisor:
    """Starts runs in the server's nursery."""

    nursery: trio.Nursery
    services: Services

    async def start(self, spec: RunSpec) -> tuple[Run, ClientHandle]:
        """Start a run and wait until the store knows of it.

        Return it with the handle of the client that started it.

        Raises:
            StoreError: the store does not take it. Then there is no run.
            JobChanged: the run of a job has begun elsewhere, or the job has changed.
        """
        run = Run(self.services, spec, agent_nursery=self.nursery)
        client = run.clients.connect()
        # If the client leaves before the store has answered, the run's policy decides too, not this
        # request.
        with trio.CancelScope(shield=True):
            await self.nursery.start(run.main)
        return run, client


@asynccontextmanager
async def attach(
    run: Run, client: ClientHandle, applies_backpressure: bool = False, first: int = 0
) -> AsyncIterator[Subscriber]:
    """Subscribe to a live run from its beginning, or from a later change.

    Leaving disconnects the client, and the run's policy applies.
    """
    try:
        with run.log.subscribe(first, applies_backpressure) as subscriber:
            yield subscriber
    finally:
        client.disconnect()


@asynccontextmanager
async def attach_until_question(
    run: Run, client: ClientHandle, applies_backpressure: bool = False, first: int = 0
) -> AsyncIterator[ChangeReader]:
    """Subscribe to a live run up to its end, or to an approval request that is still open."""
    async with attach(run, client, applies_backpressure, first) as subscriber:

        async def pause(question: OpenQuestion) -> bool:
            return run.pause(question)

        yield QuestionReader(subscriber, pause, first)


@asynccontextmanager
async def open_supervisor(services: Services) -> AsyncIterator[RunSupervisor]:
    """Supervise runs while the block lasts.

    Runs that are still live at its end are cancelled and saved.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(services.flusher.run)
        try:
            yield RunSupervisor(nursery, services)
        finally:
            services.registry.stop_all(Reason.SERVER_SHUTDOWN)
            services.suspended.stop_all(Reason.SERVER_SHUTDOWN)
        nursery.cancel_scope.cancel()
