"""Scripted agents, failing stores, and an in-memory server around them."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import Any, cast

import attrs
import trio
from attrs import define, evolve, field, frozen
from quart_trio import QuartTrio

from hermes_trio.agent.emitter import AsyncEmitter, Emitter
from hermes_trio.agent.interface import AgentContext, AgentFactory, TurnRequest, can_continue
from hermes_trio.agent.runner import AgentRuntime
from hermes_trio.agents.demo import DemoAgent
from hermes_trio.core.access import Principal
from hermes_trio.core.approvals import Decision
from hermes_trio.core.events import (
    ClientCall,
    Event,
    Reasoning,
    Result,
    Text,
    ToolAnnounced,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
    Verdict,
)
from hermes_trio.core.messages import Message
from hermes_trio.core.outcome import Outcome
from hermes_trio.core.records import EndedRun, LogBatch, Ownership, RunHeader
from hermes_trio.jobs.scheduler import JobRules, Scheduler
from hermes_trio.keys import ActiveKeys, Keyring, NamedKey
from hermes_trio.runs.admission import Admission, BodyBudget, SessionLocks
from hermes_trio.runs.cluster import Cluster
from hermes_trio.runs.persistence import LogFlusher
from hermes_trio.runs.registry import RunRegistry
from hermes_trio.runs.run import Run
from hermes_trio.runs.session_locks import SharedSessionLocks
from hermes_trio.runs.spec import AgentEnvironment, Services
from hermes_trio.runs.supervisor import RunSupervisor
from hermes_trio.runs.tracker import DEFAULT_LIMITS, RunLimits
from hermes_trio.stores.base import SharedStore, Store, StoreError
from hermes_trio.stores.sqlite import MemoryStore
from hermes_trio.tokens import Purpose, TokenSigner
from hermes_trio.web.app import attach_state, make_app
from hermes_trio.web.metrics import Metrics
from hermes_trio.web.start_job import start_job
from hermes_trio.web.state import AppState, HealthCallbacks, IdentifyToken, WebOptions
from tests.support.asgi import TIMEOUT, Client, real_timeout

KEY = "key-of-ann-0123456789"
OTHER_KEY = "key-of-bob-0123456789"
TOKEN_SECRET = b"a secret of 32 bytes, for tests."
KEYRING = Keyring((NamedKey("ann", KEY), NamedKey("bob", OTHER_KEY)))
NOWHERE = Path("/nonexistent")
PLAIN = WebOptions()
UTC_JOBS = JobRules(UTC)
EPOCH = 1_700_000_000.9


class Pause:
    """A step where the agent waits until the test calls ``go``, or until it is cancelled."""

    def __init__(self) -> None:
        self.reached = trio.Event()
        self._go, self._go_in_trio = threading.Event(), trio.Event()
        self._token = trio.lowlevel.current_trio_token()

    def go(self) -> None:
        """Let the agent continue. Trio thread only."""
        self._go.set()
        self._go_in_trio.set()

    async def wait_reached(self) -> None:
        """Return when the agent waits here."""
        with real_timeout():
            await self.reached.wait()

    def stop_here(self) -> None:
        """Stop the agent's thread here."""
        self._token.run_sync_soon(self.reached.set)
        assert self._go.wait(TIMEOUT), "the test did not resume the agent"

    def wake(self) -> None:
        """Let the agent's thread continue. Any thread."""
        self._go.set()

    async def stop_here_in_trio(self) -> None:
        """Stop the agent's task here."""
        self.reached.set()
        await self._go_in_trio.wait()


@frozen
class Ask:
    """A step where the agent requests approval; the factory records the decision."""

    command: str
    patterns: tuple[str, ...] = ()
    call_id: str = ""
    allow_permanent: bool = True

    @property
    def words(self) -> tuple[Any, ...]:
        """The arguments of the emitter's ``ask``."""
        return self.command, "because", self.patterns, self.call_id, self.allow_permanent


Step = Event | Pause | Ask | None  # None: a delta that is only a display signal
End = Result | str | Exception | None
HELLO = (Text("Hello"), Text(" world"))


_SAID_BY: dict[type, str] = {
    Text: "text",
    Reasoning: "reasoning",
    ToolStarted: "tool_started",
    ToolAnnounced: "tool_announced",
    ToolOutput: "tool_output",
    ToolCompleted: "tool_completed",
    ClientCall: "client_call",
}


def _words(step: Event | None) -> tuple[str, list[Any]]:
    """Return the emitter's method that emits an event, and its arguments."""
    if step is None:
        return "text", [None]
    fields = [name for name in attrs.fields_dict(type(step)) if name != "at"]
    return _SAID_BY[type(step)], [getattr(step, name) for name in fields]


@define(eq=False)
class ScriptedAgentFactory:
    """Creates agents that play the same script, and records how they end."""

    script: Sequence[Step]
    end: End = None
    is_async: bool = False
    factory_pause: Pause | None = None  # holds the factory
    can_continue: bool = False  # the agents continue an answer that has begun
    turns: list[TurnRequest] = field(factory=list)
    interrupts: list[str] = field(factory=list)
    exits: list[str] = field(factory=list)  # how each agent's run was left
    decisions: list[Decision] = field(factory=list)

    def factory(self, context: AgentContext) -> Any:
        """Make an agent."""
        if self.factory_pause is not None:
            self.factory_pause.stop_here()
        self.turns.append(context.turn)
        return AsyncScriptedAgent(self) if self.is_async else ScriptedAgent(self)

    def finish(self) -> Result | str | None:
        """End the script."""
        if isinstance(self.end, Exception):
            raise self.end.with_traceback(None)  # else it grows with every run of the script
        return self.end

    @contextmanager
    def recording_exit(self) -> Iterator[None]:
        """Record how the block is left."""
        try:
            yield
        except BaseException as error:
            self.exits.append(type(error).__name__)
            raise
        self.exits.append("")


@define(eq=False)
class DemoAgentFactory(ScriptedAgentFactory):
    """Creates demo agents, which follow the commands in the message."""

    script: Sequence[Step] = ()
    workspace: Path = NOWHERE

    def factory(self, context: AgentContext) -> Any:
        """Make an agent that does not pause between words."""
        self.turns.append(context.turn)
        return DemoAgent(self.workspace, word_delay=0)


@define(eq=False)
class ScriptedAgent:
    """The agent that runs in a thread."""

    agents: ScriptedAgentFactory
    is_interrupted: bool = False

    def run(self, turn: TurnRequest, emitter: Emitter) -> Result | str | None:
        """Play the script."""
        with self.agents.recording_exit():
            for step in self.agents.script:
                self._play(step, emitter)
                if self.is_interrupted:
                    return Result(verdict=Verdict.INTERRUPTED)
            return self.agents.finish()

    def interrupt(self, reason: str) -> None:
        """Interrupt the script at once."""
        self.is_interrupted = True
        self.agents.interrupts.append(reason)
        for step in self.agents.script:
            if isinstance(step, Pause):
                step.wake()

    def _play(self, step: Step, emitter: Emitter) -> None:
        if isinstance(step, Pause):
            step.stop_here()
        elif isinstance(step, Ask):
            self.agents.decisions.append(emitter.ask(*step.words))
        else:
            method, args = _words(step)
            getattr(emitter, method)(*args)


@define(eq=False)
class AsyncScriptedAgent:
    """The agent that is a Trio task."""

    agents: ScriptedAgentFactory

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> Result | str | None:
        """Play the script."""
        with self.agents.recording_exit():
            for step in self.agents.script:
                await self._play(step, emitter)
            return self.agents.finish()

    async def _play(self, step: Step, emitter: AsyncEmitter) -> None:
        if isinstance(step, Pause):
            await step.stop_here_in_trio()
        elif isinstance(step, Ask):
            self.agents.decisions.append(await emitter.ask(*step.words))
        else:
            method, args = _words(step)
            await getattr(emitter, method)(*args)


NO_FACTORIES: Mapping[str, ScriptedAgentFactory] = {}


class BrokenStore(MemoryStore):
    """A store that fails to read, to write, or both."""

    def __init__(self, *broken: str) -> None:
        super().__init__()
        self._broken = broken

    async def load_messages(self, principal: str, session_id: str) -> tuple[Message, ...]:
        self._fail("read")
        return await super().load_messages(principal, session_id)

    async def begin_run(self, header: RunHeader, ownership: Ownership) -> None:
        self._fail("begin")
        await super().begin_run(header, ownership)

    async def end_run(
        self,
        ended: EndedRun,
        tail: Sequence[LogBatch] = (),
        items: Sequence[Mapping[str, Any]] = (),
        ownership: Ownership | None = None,
    ) -> bool:
        self._fail("write")
        return await super().end_run(ended, tail, items, ownership)

    async def check(self) -> None:
        self._fail("read")

    def _fail(self, doing: str) -> None:
        if doing in self._broken:
            raise StoreError("the disk is on fire")


class RecordingRegistry(RunRegistry[Run]):
    """A registry that keeps every run, so that a test can look at its subscribers afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[Run] = []

    def add(self, header: RunHeader, run: Run) -> None:
        self.runs.append(run)
        super().add(header, run)


@frozen
class AppHarness:
    """An in-memory server: its components, and a client with a key."""

    state: AppState
    client: Client
    agents: ScriptedAgentFactory
    store: Store
    ends: list[tuple[str, str]]  # status and reason of every run that ended

    @property
    def app(self) -> QuartTrio:
        """The application, as an embedding program has it."""
        return cast("QuartTrio", self.client.app)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, and no slot or conversation is taken."""
        is_held = self.state.admission.in_use or self.state.session_locks.locked
        return not (len(self.state.services.registry) or is_held)

    @property
    def has_readers(self) -> bool:
        """Whether the log of any run, live or not, has a subscriber."""
        registry = cast("RecordingRegistry", self.state.services.registry)
        return any(run.log._subscribers for run in registry.runs)

    async def transcript(self, session_id: str, principal: str = "ann") -> list[tuple[str, Any]]:
        """Return the roles and texts of a stored session."""
        found = await self.store.load_messages(principal, session_id)
        return [(message.role, message.content) for message in found]

    async def until_idle(self) -> None:
        """Wait until nothing runs. Polls, because abandoned threads do not notify."""
        with real_timeout():
            while not self.is_idle:
                await trio.lowlevel.checkpoint()


async def no_token(_token: str) -> Principal | None:
    """Identify no bearer token."""
    return None


def make_harness(
    script: Iterable[Step] | ScriptedAgentFactory = HELLO,
    end: End = None,
    *,
    options: WebOptions = PLAIN,
    limits: RunLimits = DEFAULT_LIMITS,
    max_runs: int = 2,
    admission: Admission | None = None,
    bodies: BodyBudget | None = None,
    turn_patience: float = 0.0,
    store: Store | None = None,
    workspace: Path = NOWHERE,
    keyring: Keyring = KEYRING,
    identify_token: IdentifyToken = no_token,
    not_ready: str = "",
    nursery: trio.Nursery | None = None,
    wall_clock: Callable[[], float] = lambda: EPOCH,
    clock: Callable[[], float] = time.monotonic,
    profile_agents: Mapping[str, ScriptedAgentFactory] = NO_FACTORIES,
    node: str = "server",
    job_rules: JobRules = UTC_JOBS,
) -> AppHarness:
    """Make a server whose agents play a script.

    Only in Trio. Runs that outlive their request need ``open_harness``. With a shared store, the
    server is one node of several.
    """
    agents = (
        script
        if isinstance(script, ScriptedAgentFactory)
        else ScriptedAgentFactory(tuple(script), end)
    )
    store = store or MemoryStore()
    metrics = Metrics()
    ends: list[tuple[str, str]] = []

    def note_end(outcome: Outcome, seconds: float) -> None:
        ends.append((str(outcome.status), str(outcome.reason)))
        metrics.run_ended(outcome, seconds)

    host = AgentRuntime(_marked_factory(agents), trio.CapacityLimiter(10), trio.CapacityLimiter(10))
    registry, locks = RecordingRegistry(), SessionLocks(turn_patience)
    cluster = None
    if isinstance(store, SharedStore):
        cluster = Cluster(store, store, node, registry)
        locks = SharedSessionLocks(turn_patience, store, node)
    services = Services(
        host,
        store,
        registry,
        LogFlusher(store, 0.0),
        workspace,
        limits,
        wall_clock=wall_clock,
        clock=clock,
        on_end=note_end,
        on_first_text=metrics.first_text,
        environments={
            name: AgentEnvironment(evolve(host, factory=other.factory), workspace / name)
            for name, other in profile_agents.items()
        },
        owner=node,
        cluster=cluster,
    )
    health = HealthCallbacks(lambda: not_ready, lambda: {"pid": 1, "updated_at": EPOCH})
    keys = ActiveKeys(keyring)
    supervisor = RunSupervisor(cast("trio.Nursery", nursery), services)
    state = AppState(
        options,
        keys,
        identify_token,
        TokenSigner(Purpose.STREAM_TICKET, TOKEN_SECRET, keys),
        TokenSigner(Purpose.PAGE_SESSION, TOKEN_SECRET, keys),
        admission or Admission(max_runs),
        bodies or BodyBudget(options.max_body_bytes),
        locks,
        services,
        supervisor,
        health,
        metrics,
        Scheduler(store, wall_clock, job_rules),
    )
    app = make_app(options)
    attach_state(app, state)
    # As a client of hermes-agent: most tests look at both items of a tool call.
    client = Client(app, {**bearer(KEY), "X-Hermes-Tool-Items": "function_call"})
    return AppHarness(state, client, agents, store, ends)


def _marked_factory(agents: ScriptedAgentFactory) -> AgentFactory:
    return can_continue(partial(agents.factory)) if agents.can_continue else agents.factory


@asynccontextmanager
async def open_harness(
    script: Iterable[Step] | ScriptedAgentFactory = HELLO, end: End = None, **more: Any
) -> AsyncIterator[AppHarness]:
    """Open a server that can host runs."""
    async with trio.open_nursery() as nursery:
        harness = make_harness(script, end, nursery=nursery, **more)
        nursery.start_soon(harness.state.services.flusher.run)
        if harness.state.services.cluster is not None:
            nursery.start_soon(harness.state.services.cluster.run)
            nursery.start_soon(cast("SharedSessionLocks", harness.state.session_locks).run)
        scheduler = harness.state.scheduler
        nursery.start_soon(scheduler.run, partial(start_job, harness.state, scheduler.zone))
        yield harness
        nursery.cancel_scope.cancel()


def bearer(key: str) -> dict[str, str]:
    """Return the header with a key."""
    return {"Authorization": f"Bearer {key}"}


CHAT = "/v1/chat/completions"


def ask(text: object = "Hi", **more: Any) -> dict[str, Any]:
    """Return the body of a chat request with one user message."""
    return {"messages": [{"role": "user", "content": text}], **more}


def ask_stream(text: object = "Hi", **more: Any) -> dict[str, Any]:
    """Return the body of a streamed chat request with one user message."""
    return ask(text, stream=True, **more)
