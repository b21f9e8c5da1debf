"""One execution of an agent as Trio tasks.

A run lives in the nursery of its owner. Inside, it has a scope of its own (to be stopped without its owner) and two
memory channels: the inbox from the agent's threads to the tracker, and ``changes`` from the tracker to the reader.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import trio
from attrs import frozen

from hermes_trio.agent.bridge import AgentHost, Bridge
from hermes_trio.agent.contract import AgentContext, TurnRequest
from hermes_trio.agent.inbox import Inbox
from hermes_trio.agent.port import Words
from hermes_trio.core.messages import Message
from hermes_trio.core.outcome import Outcome, Reason
from hermes_trio.core.record import TurnRecord
from hermes_trio.core.stamp import Stamp
from hermes_trio.core.transcript import transcript
from hermes_trio.core.turn import Turn
from hermes_trio.runs.admission import Slot
from hermes_trio.runs.registry import Registry
from hermes_trio.runs.tracker import DEFAULT_LIMITS, Changes, Hooks, Limits, Tracker
from hermes_trio.stores.contract import Store

# One batch may wait while the reader writes another; more would only hide a slow reader from the agent.
BATCHES = 1


@frozen
class Services:
    """What every run of a server shares."""

    host: AgentHost
    store: Store
    registry: Registry
    workspace: Path
    limits: Limits = DEFAULT_LIMITS
    wall_clock: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    on_end: Callable[[Outcome, float], None] = lambda outcome, seconds: None  # noqa: ARG005 - told of every end


@frozen
class Order:
    """One run to be made."""

    stamp: Stamp
    turn: TurnRequest
    slot: Slot


class Run:
    """Made and run in Trio; may be stopped at any time."""

    def __init__(self, services: Services, order: Order) -> None:
        self._services, self._order = services, order
        self._words = Words(order.stamp.run_id, services.clock)
        self._inbox = Inbox()
        self._scope = trio.CancelScope()
        self._deadline = math.inf
        self._reason = Reason.NONE
        send, self.changes = trio.open_memory_channel[Changes](BATCHES)
        hooks = Hooks(self._save, self.stop, self._why, self._words.now)
        self._tracker = Tracker(self._inbox, send, hooks, services.limits)

    async def main(self) -> None:
        """Run the agent and the tracker until both are done. Leaves nothing behind but an abandoned thread."""
        services, order = self._services, self._order
        order.slot.hold()
        self._set_deadline(services.limits.run)
        context = AgentContext(order.turn, services.workspace)
        bridge = Bridge(services.host, context, self._inbox, self._words)
        with ExitStack() as stack:
            stack.enter_context(services.registry.listed(order.stamp.run_id, self))
            stack.callback(self._count)
            stack.enter_context(self._scope)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(bridge.run, self._why, order.slot.release)
                await self._tracker.run()

    def _count(self) -> None:
        self._services.on_end(self._tracker.told, self._words.now())

    def stop(self, reason: Reason) -> None:
        """End the run from outside. The first reason counts."""
        self._reason = self._reason or reason
        self._scope.cancel(reason=str(reason))

    def _set_deadline(self, seconds: float) -> None:
        if seconds:
            self._deadline = self._scope.deadline = trio.current_time() + seconds

    def _why(self) -> Reason:
        """Why the run was cancelled: by a stop, by its time limit, or else because its owner was."""
        if self._reason:
            return self._reason
        return Reason.TIMEOUT if trio.current_time() >= self._deadline else Reason.CLIENT_DISCONNECTED

    async def _save(self, turn: Turn) -> None:
        await self._services.store.save_turn(self._record(turn))

    def _record(self, turn: Turn) -> TurnRecord:
        order, outcome = self._order, turn.outcome
        return TurnRecord(
            principal=order.turn.principal,
            run_id=order.stamp.run_id,
            session_id=outcome.session_id or order.turn.session_id,
            model=order.stamp.model,
            status=str(outcome.status),
            reason=str(outcome.reason),
            started_at=order.stamp.created_at,
            ended_at=self._services.wall_clock(),
            usage=outcome.usage,
            messages=(Message("user", order.turn.message), *transcript(turn.items)),
        )


@asynccontextmanager
async def open_run(services: Services, order: Order) -> AsyncIterator[trio.MemoryReceiveChannel[Changes]]:
    """A run that is owned by the block: it ends with it, whoever leaves first."""
    run = Run(services, order)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run.main)
        with run.changes:
            try:
                yield run.changes
            except Exception:
                run.stop(Reason.SERVER_ERROR)
                raise
        run.stop(Reason.CLIENT_DISCONNECTED)  # nothing, if the run is over
