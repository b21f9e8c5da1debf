"""Run an agent without a run: record its events, or use a real runner and event queue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import trio
from attrs import define, field

from hermes_trio.agent.approvals import PendingApprovals
from hermes_trio.agent.emitter import AsyncEmitter, Emitter, EventFactory
from hermes_trio.agent.event_queue import EventQueue, RunEnded
from hermes_trio.agent.interface import AgentContext, AgentFactory, TurnRequest
from hermes_trio.agent.runner import AgentRunner, AgentRuntime
from hermes_trio.core.approvals import Decision
from hermes_trio.core.events import (
    AnsweredBy,
    ApprovalRequest,
    Choice,
    Event,
    EventOrText,
    Reasoning,
    Text,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
)

DENIED = Decision(Choice.DENY, AnsweredBy.NOBODY)


@define
class EventRecorder:
    """An event queue that records every event and can end the run at the n-th one."""

    ends_at: int = -1
    on_event: Callable[[Event], object] = lambda _event: None
    decision: Decision = DENIED  # the answer to every question
    events: list[Event] = field(factory=list)
    approvals: PendingApprovals = field(factory=PendingApprovals)

    def put(self, said: EventOrText) -> None:
        event = Text(said) if isinstance(said, str) else said
        if len(self.events) == self.ends_at:
            raise RunEnded
        self.events.append(event)
        self.on_event(event)
        if isinstance(event, ApprovalRequest):
            self.approvals.resolve(event.approval_id, self.decision)

    def put_nowait(self, said: EventOrText) -> bool:
        self.put(said)
        return True

    def async_emitter(self) -> AsyncEmitter:
        """Return an emitter for Trio tasks that writes to this recorder."""
        return AsyncEmitter(cast("EventQueue", self), EventFactory("run_1"), self.approvals)

    def emitter(self) -> Emitter:
        """Return an emitter that writes to this recorder."""
        return Emitter(cast("EventQueue", self), EventFactory("run_1"), self.approvals)

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Text))

    @property
    def reasoning(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Reasoning))

    @property
    def output(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, ToolOutput))

    @property
    def calls(self) -> list[tuple[str, dict[str, Any], str, bool]]:
        """Return name, arguments, result and failure of each call; fail if one is incomplete."""
        started = [event for event in self.events if isinstance(event, ToolStarted)]
        ends = {event.call_id: event for event in self.events if isinstance(event, ToolCompleted)}
        assert set(ends) == {event.call_id for event in started}
        return [
            (event.name, dict(event.args), ends[event.call_id].result, ends[event.call_id].is_error)
            for event in started
        ]


def turn(text: str, **more: Any) -> TurnRequest:
    """Return a turn request with this message."""
    return TurnRequest("run_1", "session_1", **{"message": text, **more})


@define
class AgentRun:
    """An agent behind the real runner and event queue."""

    queue: EventQueue
    events: list[Event] = field(factory=list)
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    gone: trio.Event = field(factory=trio.Event)

    async def until(self, kind: type[Event]) -> Event:
        """Read until an event of this kind has come."""
        while True:
            for event in await self._batch():
                if isinstance(event, kind):
                    return event

    async def to_end(self) -> None:
        """Read to the end."""
        while await self._batch():
            pass

    async def _batch(self) -> list[Event]:
        try:
            batch = await self.queue.receive()
        except trio.EndOfChannel:
            return []
        self.events += batch
        return batch


async def start(
    nursery: trio.Nursery, factory: AgentFactory, request: TurnRequest, workspace: Path
) -> AgentRun:
    """Start an agent in a nursery; cancelling the run's scope cancels it."""
    host = AgentRuntime(factory, trio.CapacityLimiter(2), trio.CapacityLimiter(2))
    run = AgentRun(EventQueue())
    runner = AgentRunner(
        host, AgentContext(request, workspace), run.queue, EventFactory("run_1"), PendingApprovals()
    )

    async def in_scope() -> None:
        with run.scope:
            await runner.run(lambda: "test", run.gone.set)

    nursery.start_soon(in_scope)
    return run
