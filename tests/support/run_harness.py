"""One run with its services, without a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from hermes_trio.agent.emitter import AsyncEmitter
from hermes_trio.agent.interface import TurnRequest
from hermes_trio.agent.runner import AgentRuntime
from hermes_trio.core.changes import ApprovalRequested, Change
from hermes_trio.core.events import (
    Event,
    Finished,
    Reasoning,
    Text,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
)
from hermes_trio.core.messages import Message
from hermes_trio.core.outcome import Outcome
from hermes_trio.core.records import EndedRun, LogBatch, Ownership, RunHeader, Stamp
from hermes_trio.runs.admission import Admission
from hermes_trio.runs.persistence import LogFlusher
from hermes_trio.runs.registry import RunRegistry
from hermes_trio.runs.run import Run
from hermes_trio.runs.spec import RunSpec, Services
from hermes_trio.runs.tracker import DEFAULT_LIMITS, RunLimits
from hermes_trio.stores.sqlite import MemoryStore
from tests.support.asgi import real_timeout


class EventReplayAgent:
    """An asynchronous agent that emits events one by one, then waits until the test ends it."""

    def __init__(self, events: Iterable[Event], holds: bool = False) -> None:
        self.events = list(events)
        self.said_all = trio.Event()
        self.may_end = trio.Event()
        if not holds:
            self.may_end.set()

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> Any:
        """Play the script."""
        result: Any = None
        for event in self.events:
            if isinstance(event, Finished):
                result = event.result
            else:
                await _say(emitter, event)
        self.said_all.set()
        await self.may_end.wait()
        return result


async def _say(emitter: AsyncEmitter, event: Event) -> None:
    match event:
        case Text(text):
            await emitter.text(text)
        case Reasoning(text):
            await emitter.reasoning(text)
        case ToolStarted():
            await emitter.tool_started(event.call_id, event.name, event.args)
        case ToolOutput():
            await emitter.tool_output(event.call_id, event.text)
        case ToolCompleted():
            await emitter.tool_completed(event.call_id, event.result, event.is_error)
        case other:
            raise AssertionError(other)


class RecordingStore(MemoryStore):
    """A store that records terminal records, after a hook of the test."""

    def __init__(self, before: Callable[[], Any] | None = None) -> None:
        super().__init__()
        self.records: list[EndedRun] = []
        self._before = before

    async def end_run(
        self,
        ended: EndedRun,
        tail: Sequence[LogBatch] = (),
        items: Sequence[Mapping[str, Any]] = (),
        ownership: Ownership | None = None,
    ) -> bool:
        """Record it."""
        await trio.lowlevel.checkpoint()
        if self._before is not None:
            await self._before()
        is_ours = await super().end_run(ended, tail, items, ownership)
        self.records.append(ended)
        return is_ours


class RunHarness:
    """The services of one run, and its spec."""

    def __init__(
        self,
        agent: Any,
        limits: RunLimits = DEFAULT_LIMITS,
        store: RecordingStore | None = None,
        grace: float = 1.0,
    ) -> None:
        self.store = store or RecordingStore()
        self.admission = Admission(1)
        self.registry: RunRegistry[Run] = RunRegistry()
        host = AgentRuntime(
            lambda _: agent, trio.CapacityLimiter(1), trio.CapacityLimiter(1), grace
        )
        self.ends: list[Outcome] = []
        self.services = Services(
            host,
            self.store,
            self.registry,
            LogFlusher(self.store),
            Path(),
            limits,
            clock=trio.current_time,
            on_end=lambda outcome, _: self.ends.append(outcome),
        )
        turn = TurnRequest("run-1", "session-1", "hello", model="m", principal="ann")
        header = RunHeader(
            "ann", Stamp("run-1", 99.0, "m"), "chat", "session-1", (Message("user", "hello"),)
        )
        self.order = RunSpec(header, turn, self.admission.admit("ann"))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Run]:
        """Open only the run, in a nursery that the test may cancel."""
        run = Run(self.services, self.order)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run.main)
            yield run

    def check_nothing_left(self) -> None:
        """Check that no run and no slot is left."""
        assert len(self.registry) == 0
        assert self.admission.in_use == 0


async def rest_of(run: Run) -> list[Change]:
    """Return all changes from the beginning to the end."""
    with run.log.subscribe() as reader:
        return [change async for batch in reader for change in batch]


async def until_asked(run: Run, count: int = 1) -> tuple[ApprovalRequested, ...]:
    """Wait until a run has this number of open approval requests."""
    with real_timeout(), run.log.subscribe() as reader:
        while len(run.status.open_approvals) < count:
            await reader.receive()
    return run.status.open_approvals
