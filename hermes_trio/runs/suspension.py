"""Agents that wait for approvals between two runs.

A client that takes approval requests as items gets them at the end of a response and answers in its
next request. The run that asked ends then, with a record like any other, but its agent does not: it
is suspended, in the middle of its work, until another run continues with it. An agent that no run
continues in time is stopped; it has done nothing since the end of its run, so nothing of it is lost.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
import trio

from hermes_trio.agent.runner import Execution
from hermes_trio.core.dialects.responses_items import approval_item_id
from hermes_trio.core.outcome import Reason
from hermes_trio.core.records import RunHeader
from hermes_trio.core.turn import Continuation

log = structlog.get_logger(__name__)


class SuspendedRun:
    """A run that ended with approval requests, and the agent that waits for the answers."""

    def __init__(
        self,
        header: RunHeader,
        continuation: Continuation,
        execution: Execution,
        end_user: str = "",
    ) -> None:
        self.header, self.continuation, self.execution = header, continuation, execution
        self._end_user = end_user
        self._is_reserved = False
        self._is_over = False  # continued, expired or stopped
        self._changed = trio.Event()

    @property
    def approval_ids(self) -> dict[str, str]:
        """The approval requests that wait, by the ids of their items."""
        ids = [request.approval_id for request in self.continuation.requests]
        return {approval_item_id(approval_id): approval_id for approval_id in ids}

    def may_be_answered_by(self, end_user: str) -> bool:
        """Return whether an end user may answer: only the one who started the run, if known."""
        return not (self._end_user and end_user) or self._end_user == end_user

    def reserve(self) -> bool:
        """Keep others from continuing it. Return False if another request was faster."""
        if self._is_reserved or self._is_over:
            return False
        self._is_reserved = True
        return True

    def release_unused(self) -> None:
        """Let others continue it, unless it was continued. Call it at the end of the request."""
        self._is_reserved = False
        self._notify()

    def finish(self) -> None:
        """Note that it waits no longer."""
        self._is_over = True
        self._notify()

    async def wait_over(self, seconds: float) -> bool:
        """Wait until it waits no longer. Return False if that took too long."""
        with trio.move_on_after(seconds):
            await self._wait_while(lambda: not self._is_over)
        await self._wait_while(lambda: self._is_reserved and not self._is_over)
        return self._is_over

    async def _wait_while(self, holds: Callable[[], bool]) -> None:
        while holds():
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


class SuspendedRuns:
    """The suspended runs of a server, by principal and the ids of their approval items."""

    def __init__(self) -> None:
        self._by_item: dict[tuple[str, str], SuspendedRun] = {}

    async def keep(self, run: SuspendedRun, seconds: float) -> None:
        """Keep a run that was added until it is continued, and stop its agent if it is not in time."""
        if not await run.wait_over(seconds):
            log.info("an approval was not given in time", run_id=run.header.run_id)
            self.stop(run, Reason.TIMEOUT)

    def add(self, run: SuspendedRun) -> None:
        """Let clients continue a run."""
        for item_id in run.approval_ids:
            self._by_item[run.header.principal, item_id] = run

    def find(self, principal: str, item_id: str) -> SuspendedRun | None:
        """Return the run of the principal that waits for this approval, None if there is none."""
        return self._by_item.get((principal, item_id))

    def has_any(self, principal: str) -> bool:
        """Return whether an agent of the principal waits."""
        return any(owner == principal for owner, _ in self._by_item)

    def take(self, run: SuspendedRun) -> None:
        """Remove a run because another one continues it."""
        for item_id in run.approval_ids:
            del self._by_item[run.header.principal, item_id]
        run.finish()

    def stop(self, run: SuspendedRun, reason: Reason) -> None:
        """Stop the agent of a run."""
        self.take(run)
        run.execution.cancel(reason)

    def stop_run(self, principal: str, run_id: str, reason: Reason) -> None:
        """Stop the agent of the run with this id, if it is suspended."""
        for run in self._unique():
            if (run.header.principal, run.header.run_id) == (principal, run_id):
                self.stop(run, reason)

    def stop_all(self, reason: Reason) -> None:
        """Stop the agents of all suspended runs."""
        for run in self._unique():
            self.stop(run, reason)

    def _unique(self) -> list[SuspendedRun]:
        return list(dict.fromkeys(self._by_item.values()))
