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

from hermes_trio.core.approvals import question_text
from hermes_trio.core.changes import ApprovalRequested, Ended, TextAdded
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.runs.approvals import OpenQuestion
from hermes_trio.runs.disconnects import ClientHandle
from hermes_trio.runs.log import ChangeReader, Changes, Subscriber
from hermes_trio.runs.run import Run
from hermes_trio.runs.spec import RunSpec, Services

_LAST_ITEM = 2**31  # after every item of a turn
_ASKED = Ended(Outcome(Status.COMPLETED))


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
        yield QuestionReader(run, subscriber)


class QuestionReader(ChangeReader):
    """Reads a run up to an open approval request, and ends there as if the turn had.

    The request becomes the last text of the reply. The run goes on waiting for its answer.
    """

    def __init__(self, run: Run, subscriber: Subscriber) -> None:
        self._run, self._subscriber = run, subscriber
        self._gap: Changes = ()  # between the text so far and the question
        self._is_over = False

    async def receive(self) -> Changes:
        """Return the next changes. See :meth:`ChangeReader.receive`."""
        if self._is_over:
            raise trio.EndOfChannel
        return self._until_question(await self._subscriber.receive())

    def receive_nowait(self) -> Changes:
        """Return the changes that are there now. See :meth:`ChangeReader.receive_nowait`."""
        return self._until_question(self._subscriber.receive_nowait())

    def _until_question(self, changes: Changes) -> Changes:
        first = self._subscriber.position - len(changes)
        for number, change in enumerate(changes):
            if isinstance(change, TextAdded):
                self._gap = (TextAdded(change.item, "\n\n"),)
            elif isinstance(change, ApprovalRequested):
                question = OpenQuestion(change.approval_id, first + number + 1)
                if self._run.pause(question):
                    self._is_over = True
                    asked = TextAdded(_LAST_ITEM, question_text(change))
                    return (*changes[:number], *self._gap, asked, _ASKED)
        return changes


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
