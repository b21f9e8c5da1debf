"""A run supervisor with its services, and a store whose writes a test can block or make fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from attrs import frozen

from hermes_trio.agent.interface import AgentContext, TurnRequest
from hermes_trio.agent.runner import AgentRuntime
from hermes_trio.core.changes import Change
from hermes_trio.core.messages import Message
from hermes_trio.core.records import EndedRun, LiveRun, LogBatch, NoRun, Ownership, RunHeader, Stamp
from hermes_trio.runs.admission import Admission, SessionLocks
from hermes_trio.runs.disconnects import INTERRUPT, DisconnectPolicy
from hermes_trio.runs.log import StoredReader
from hermes_trio.runs.persistence import FLUSH_SECONDS, LogFlusher
from hermes_trio.runs.registry import RunRegistry
from hermes_trio.runs.run import Run
from hermes_trio.runs.spec import Persistence, RunSpec, Services
from hermes_trio.runs.supervisor import RunSupervisor, open_supervisor
from hermes_trio.runs.tracker import DEFAULT_LIMITS, RunLimits
from hermes_trio.stores.base import Store, StoreError
from hermes_trio.stores.sqlite import MemoryStore

OWNER = "this process"


class BlockableStore(MemoryStore):
    """A store in memory, of which a test can block each kind of write or make it fail.

    It records the calls, and what they wrote.
    """

    def __init__(self) -> None:
        super().__init__()
        self.blocked: dict[str, trio.Event] = {}
        self.broken: set[str] = set()
        self.calls: list[str] = []
        self.written: list[tuple[str, Any]] = []

    async def begin_run(self, header: RunHeader, ownership: Ownership) -> None:
        """Keep a run as in progress."""
        await self._pass("begin")
        await super().begin_run(header, ownership)
        self.written.append(("begin", header.run_id))

    async def append_log(
        self, batches: Sequence[LogBatch], ownership: Ownership | None = None
    ) -> frozenset[str]:
        """Append to logs."""
        await self._pass("append")
        lost = await super().append_log(batches, ownership)
        self.written.append(("append", tuple(batches)))
        return lost

    async def end_run(
        self,
        ended: EndedRun,
        tail: Sequence[LogBatch] = (),
        items: Sequence[Mapping[str, Any]] = (),
        ownership: Ownership | None = None,
    ) -> bool:
        """Give a run its terminal form."""
        await self._pass("end")
        is_ours = await super().end_run(ended, tail, items, ownership)
        self.written.append(("end", tuple(tail)))
        return is_ours

    def of(self, kind: str) -> list[Any]:
        """Return what was written by one kind of call."""
        return [what for name, what in self.written if name == kind]

    async def _pass(self, kind: str) -> None:
        self.calls.append(kind)
        if kind in self.blocked:
            await self.blocked[kind].wait()
        if kind in self.broken:
            await trio.lowlevel.checkpoint()
            raise StoreError("the disk is full")


def header_of(run_id: str, conversation: str = "") -> RunHeader:
    """Return the header of a run of the principal ann."""
    items = ({"id": f"msg_{run_id}", "type": "message", "role": "user"},) if conversation else ()
    return RunHeader(
        "ann",
        Stamp(run_id, 99.0, "m"),
        "responses",
        "session-1",
        (Message("user", "hello"),),
        conversation=conversation,
        input_items=items,
    )


@frozen
class SupervisorHarness:
    """A supervisor, and everything that its runs need."""

    supervisor: RunSupervisor
    store: Store
    admission: Admission
    session_locks: SessionLocks

    @property
    def services(self) -> Services:
        """What its runs share."""
        return self.supervisor.services

    def make_spec(
        self,
        run_id: str = "run-1",
        policy: DisconnectPolicy = INTERRUPT,
        keep: Persistence = Persistence.FULL,
    ) -> RunSpec:
        """Return the specification of a run, in a conversation of its own."""
        turn = TurnRequest(run_id, "session-1", "hello", model="m", principal="ann")
        slot, locks = self.admission.admit("ann"), self.session_locks.acquire_nowait("ann", run_id)
        return RunSpec(header_of(run_id), turn, slot, locks, keep, policy)

    async def record(self, run_id: str = "run-1") -> LiveRun | EndedRun | NoRun:
        """Return what the store holds of a run."""
        return await self.store.find_run("ann", run_id)

    async def ended(self, run_id: str = "run-1") -> EndedRun:
        """Return the terminal record of a run, which must exist."""
        found = await self.record(run_id)
        assert isinstance(found, EndedRun), found
        return found

    async def logged(self, run_id: str = "run-1") -> list[Change]:
        """Return the log in the store, which must have an end."""
        reader = StoredReader(self.store, "ann", run_id)
        return [change async for batch in reader for change in batch]

    def check_nothing_left(self) -> None:
        """Check that no run, slot or lock is left."""
        assert len(self.services.registry) == 0
        assert self.admission.in_use == 0
        assert not self.session_locks.locked


@asynccontextmanager
async def open_supervisor_harness(
    agents: Any,
    store: Store | None = None,
    limits: RunLimits = DEFAULT_LIMITS,
    interval: float = FLUSH_SECONDS,
    is_strict: bool = False,
) -> AsyncIterator[SupervisorHarness]:
    """Open a supervisor. ``agents`` is one agent for all runs, or a mapping by run id."""

    def factory(context: AgentContext) -> Any:
        return agents[context.turn.run_id] if isinstance(agents, Mapping) else agents

    store = store or MemoryStore()
    host = AgentRuntime(factory, trio.CapacityLimiter(100), trio.CapacityLimiter(100), 1.0)
    registry: RunRegistry[Run] = RunRegistry()
    flusher = LogFlusher(store, interval, is_strict, Ownership(OWNER))
    services = Services(
        host, store, registry, flusher, Path(), limits, owner=OWNER, clock=trio.current_time
    )
    async with open_supervisor(services) as supervisor:
        yield SupervisorHarness(supervisor, store, Admission(0), SessionLocks())


async def read_all(reader: Any) -> list[Change]:
    """Return all changes that a reader gets."""
    return [change async for batch in reader for change in batch]
