"""An in-memory server that records what its agents emitted and what its store was asked to save, in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import trio
from attrs import define, field, frozen

from hermes_trio.agent.emitter import AsyncEmitter
from hermes_trio.agent.interface import AgentContext, TurnRequest
from hermes_trio.core.events import Result, Text
from hermes_trio.core.records import EndedRun, LiveRun, LogBatch, NoRun, Ownership, RunHeader
from hermes_trio.runs.run import Run
from hermes_trio.runs.spec import Persistence
from hermes_trio.stores.sqlite import MemoryStore
from tests.robustness.invariants import (
    IN_PROGRESS,
    StatusHistory,
    faults_of_record,
    stored_run_of_record,
)
from tests.robustness.schedule import steps
from tests.robustness.streams import Dialect, read_stream
from tests.robustness.violations import VIOLATIONS, Violation, counted
from tests.support.asgi import Exchange, Headers, make_scope
from tests.support.fakes import (
    AppHarness,
    AsyncScriptedAgent,
    RecordingRegistry,
    ScriptedAgentFactory,
    Step,
    make_harness,
)

STUCK_SECONDS = 2_000.0  # seconds of a mock clock after which nothing will happen any more


class InjectedError(Exception):
    """An error injected by a test."""


@define(eq=False)
class ObservedAgents(ScriptedAgentFactory):
    """Create async agents and record the text that was accepted: it must never be lost."""

    accepted_text: dict[str, str] = field(factory=dict)
    delay_steps: int = 0  # steps of the scheduler between two steps of the script
    is_async: bool = True

    def factory(self, context: AgentContext) -> Any:
        """Make an agent."""
        self.turns.append(context.turn)
        return ObservedAgent(self, context.turn.run_id)


@define(eq=False)
class ObservedAgent(AsyncScriptedAgent):
    """Plays the script of its troupe."""

    run_id: str

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> Result | str | None:
        """Play."""
        cast("ObservedAgents", self.agents).accepted_text[self.run_id] = ""
        return await super().run(turn, emitter)

    async def _play(self, step: Step, emitter: AsyncEmitter) -> None:
        await steps(cast("ObservedAgents", self.agents).delay_steps)
        await super()._play(step, emitter)
        if isinstance(step, Text):
            cast("ObservedAgents", self.agents).accepted_text[self.run_id] += step.text


class ObservedStore(MemoryStore):
    """A store that records every begin and end, and can be made to fail at its n-th call."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = StatusHistory()
        self.ends: Counter[str] = Counter()
        self.calls = 0
        self._failing, self._error = range(0), Exception()

    def break_at(self, call: int, error: Exception, lasting: int = 1) -> None:
        """Count from nought; the call with this number fails, and those after it for a while."""
        self.calls, self._failing, self._error = 0, range(call, call + lasting), error

    async def begin_run(self, header: RunHeader, ownership: Ownership) -> None:
        self._pass()
        await super().begin_run(header, ownership)
        self.ledger.note(header.run_id, IN_PROGRESS)

    async def append_log(
        self, batches: Sequence[LogBatch], ownership: Ownership | None = None
    ) -> frozenset[str]:
        self._pass()
        return await super().append_log(batches, ownership)

    async def end_run(
        self,
        ended: EndedRun,
        tail: Sequence[LogBatch] = (),
        items: Sequence[Mapping[str, Any]] = (),
        ownership: Ownership | None = None,
    ) -> bool:
        self._pass()
        is_ours = await super().end_run(ended, tail, items, ownership)
        self.ends[ended.header.run_id] += 1
        self.ledger.note(ended.header.run_id, str(ended.outcome.status))
        return is_ours

    async def find_run(self, principal: str, run_id: str) -> LiveRun | EndedRun | NoRun:
        self._pass()
        return await super().find_run(principal, run_id)

    async def load_messages(self, principal: str, session_id: str) -> Any:
        self._pass()
        return await super().load_messages(principal, session_id)

    async def claim_key(self, record: Any) -> Any:
        self._pass()
        return await super().claim_key(record)

    def _pass(self) -> None:
        """One more call."""
        self.calls += 1
        if self.calls in self._failing:
            raise self._error.with_traceback(None)


class ObservedExchange(Exchange):
    """An exchange that reports an end announced before it is saved."""

    def __init__(
        self, scope: dict[str, Any], store: ObservedStore, dialect: Dialect | None
    ) -> None:
        super().__init__(scope)
        self._store, self.dialect = store, dialect
        self.faults: list[str] = []

    def _take(self, data: bytes) -> None:
        if self.dialect is not None and self._status == 200:
            received = read_stream(self.dialect, _whole_frames(self.raw + data))
            if received.ends and not self._store.ends[received.run_id] and self._is_kept:
                self.faults.append(f"the end of {received.run_id} is told before it is saved")
        super()._take(data)

    _is_kept = True


def _whole_frames(body: bytes) -> bytes:
    """Leave out the frame that is still under way, if it is a stream."""
    end = body.rfind(b"\n\n")
    return body if end < 0 else body[: end + 2]


@frozen
class ObservedServer:
    """A harness with every part observed."""

    harness: AppHarness
    nursery: trio.Nursery

    @property
    def store(self) -> ObservedStore:
        """Its store."""
        return cast("ObservedStore", self.harness.store)

    @property
    def agents(self) -> ObservedAgents:
        """Its agents."""
        return cast("ObservedAgents", self.harness.agents)

    @property
    def runs(self) -> list[Run]:
        """Every run since the last look."""
        return cast("RecordingRegistry", self.harness.state.services.registry).runs

    def reset(self) -> None:
        """Forget all recorded runs."""
        self.runs.clear()
        self.harness.ends.clear()
        self.agents.turns.clear()
        self.agents.exits.clear()
        self.agents.accepted_text.clear()
        self.store.ends.clear()

    def exchange(
        self, method: str, path: str, body: bytes, headers: Headers, dialect: Dialect | None
    ) -> ObservedExchange:
        """A request that is about to be sent."""
        scope = make_scope(method, path, {**self.harness.client.headers, **headers})
        exchange = ObservedExchange(scope, self.store, dialect)
        exchange.upload(body)
        return exchange

    async def until_quiet(self) -> None:
        """Wait, on a clock that jumps, until nothing is left to do.

        Give up when nothing will happen any more.
        """
        with trio.move_on_after(STUCK_SECONDS):
            while not self.harness.is_idle or self.harness.has_readers or self._unsaved():  # noqa: ASYNC110 - no event tells it
                await trio.sleep(0.5)

    def _unsaved(self) -> list[Any]:
        return self.harness.state.services.flusher.ends._queue

    async def faults(self, may_be_unsaved: bool = False) -> list[str]:
        """What is left that must not be, and what is wrong with the records.

        Args:
            may_be_unsaved: the store failed; then a run that it does not know from its beginning
                may be missing.
        """
        left = list(self.left_over())
        for run in self.runs:
            found = [
                f"{run.header.run_id}: {fault}"
                async for fault in self._faults_of(run, may_be_unsaved)
            ]
            VIOLATIONS.record(Violation.STUCK, len(found))
            left += found
        left += self.store.ledger.faults
        return left

    @counted(Violation.LEAKED)
    def left_over(self) -> Iterator[str]:
        """What is still there, though nothing should be."""
        site = self.harness.state
        if live := len(site.services.registry):
            yield f"{live} runs are live"
        if site.admission.in_use:
            yield f"{site.admission.in_use} slots are taken"
        if site.session_locks.locked:
            yield f"sessions are locked: {site.session_locks.locked}"
        if self.harness.has_readers:
            yield "somebody still reads"
        if len(self.agents.exits) != len(self.agents.accepted_text):
            yield "an agent is still at work"
        if self._unsaved():
            yield "ends are not saved"
        if (tasks := len(self.nursery.child_tasks)) > 1:  # the flusher
            yield f"{tasks} tasks are left"

    async def _faults_of(self, run: Run, may_be_unsaved: bool) -> AsyncIterator[str]:
        run_id = run.header.run_id
        if not run.ended.is_set():
            yield "has not ended"
        found = await self.store.find_run(run.header.principal, run_id)
        if run._spec.persistence is Persistence.NONE or not run.has_begun:
            # A store that was too slow may still have begun it; then it was ended as failed.
            is_closed = (
                may_be_unsaved
                and isinstance(found, EndedRun)
                and found.outcome.reason == "server_error"
            )
            if not is_closed and not isinstance(found, NoRun):
                yield f"must not be stored: {found}"
            return
        if (
            isinstance(found, NoRun)
            and run._spec.persistence is Persistence.FINAL
            and may_be_unsaved
        ):
            return
        if not isinstance(found, EndedRun):
            yield f"has no terminal record: {found}"
            return
        if (ends := self.store.ends[run_id]) != 1:
            yield f"was ended {ends} times"
        for fault in faults_of_record(stored_run_of_record(found)):
            yield fault


@asynccontextmanager
async def open_observed_server(
    script: Sequence[Step], end: Any = None, store: ObservedStore | None = None, **more: Any
) -> AsyncIterator[ObservedServer]:
    """Open an observed server for the length of the block."""
    async with trio.open_nursery() as nursery:
        harness = make_harness(
            ObservedAgents(tuple(script), end),
            nursery=nursery,
            store=store or ObservedStore(),
            **more,
        )
        nursery.start_soon(harness.state.services.flusher.run)
        yield ObservedServer(harness, nursery)
        nursery.cancel_scope.cancel()
