"""Test agents without a server.

:func:`run_agent` runs an agent as the server would, with a client that answers its approval
requests and can leave at any point, and returns everything that the agent did.
:func:`check_cancellation` cancels an agent after each of its events. Both are async functions for
Trio: await them in a test of pytest-trio, or call them with ``trio.run``. Nothing here needs
pytest.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import trio
from attrs import frozen

from hermes_trio.agent.approvals import PendingApprovals
from hermes_trio.agent.emitter import EventFactory
from hermes_trio.agent.event_queue import EventQueue
from hermes_trio.agent.interface import (
    DEFAULT_CONFIG,
    Agent,
    AgentConfig,
    AgentContext,
    AgentFactory,
    AgentProvider,
    AsyncAgent,
    TurnRequest,
)
from hermes_trio.agent.runner import AgentRunner, AgentRuntime
from hermes_trio.agents.registry import open_agent
from hermes_trio.core.approvals import Decision
from hermes_trio.core.events import (
    AgentFailed,
    AnsweredBy,
    ApprovalAnswered,
    ApprovalRequest,
    Choice,
    ClientCall,
    Event,
    EventOrText,
    Finished,
    Reasoning,
    Text,
    ToolAnnounced,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
)
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.turn import Turn

__all__ = [
    "AgentRun",
    "ApprovalRequest",
    "ClientCall",
    "Event",
    "Outcome",
    "Reason",
    "Reasoning",
    "RecordedCall",
    "Status",
    "Text",
    "ToolAnnounced",
    "ToolCompleted",
    "ToolOutput",
    "ToolStarted",
    "check_cancellation",
    "run_agent",
]

AnyAgent = Agent | AsyncAgent | AgentFactory | AgentProvider


@frozen
class RecordedCall:
    """A tool call that an agent reported."""

    call_id: str
    name: str
    args: Mapping[str, Any]
    result: str = ""
    is_error: bool = False
    output: str = ""
    is_complete: bool = False  # its end was reported


@frozen
class AgentRun:
    """What an agent did in one turn."""

    events: tuple[Event, ...]  # one for each call of an emitter's method, in order
    outcome: Outcome  # as the server would record it
    answer: str  # the text that a client receives, whether it was emitted or returned
    is_abandoned: bool = False  # the agent ignored its cancellation: its thread still runs

    @property
    def status(self) -> Status:
        """How the run ended: completed, incomplete, cancelled or failed."""
        return self.outcome.status

    @property
    def text(self) -> str:
        """The text that the agent emitted."""
        return "".join(event.text for event in self.events if isinstance(event, Text))

    @property
    def reasoning(self) -> str:
        """The reasoning that the agent emitted."""
        return "".join(event.text for event in self.events if isinstance(event, Reasoning))

    @property
    def tool_calls(self) -> list[RecordedCall]:
        """The tool calls that the agent reported with an id, in the order of their start."""
        ends = {event.call_id: event for event in self.events if isinstance(event, ToolCompleted)}
        calls = []
        for event in self.events:
            if isinstance(event, ToolStarted):
                end = ends.get(event.call_id)
                output = "".join(
                    each.text
                    for each in self.events
                    if isinstance(each, ToolOutput) and each.call_id == event.call_id
                )
                known = (event.call_id, event.name, event.args)
                if end is None:
                    calls.append(RecordedCall(*known, output=output))
                else:
                    calls.append(
                        RecordedCall(*known, end.result, end.is_error, output, is_complete=True)
                    )
        return calls

    @property
    def approval_requests(self) -> list[ApprovalRequest]:
        """What the agent asked."""
        return [event for event in self.events if isinstance(event, ApprovalRequest)]


async def run_agent(  # noqa: PLR0913  # options of a test, all by name
    agent: AnyAgent,
    message: str | TurnRequest = "hello",
    *,
    decide: Choice | Callable[[ApprovalRequest], Choice] = Choice.DENY,
    stop_after: int | None = None,
    reason: Reason = Reason.CLIENT_DISCONNECTED,
    grace_seconds: float = 5.0,
    config: AgentConfig = DEFAULT_CONFIG,
    workspace: Path | None = None,
) -> AgentRun:
    """Run one turn of an agent, and return what it did.

    An exception in the agent does not propagate: the run has the status ``failed``, and the
    exception is logged.

    Args:
        agent: a factory, a provider, or an agent.
        message: the user's message, or a whole turn request.
        decide: the answer to approval requests, or a function that returns it.
        stop_after: cancel the run right after the agent has emitted this many events, as if its
            client had left; 0 cancels it before it begins.
        reason: why the run is cancelled.
        grace_seconds: how long the agent may take to stop. Do not use a mock clock with an agent
            that runs in a thread.
        config: the settings of the agent.
        workspace: the folder that tools may write to; by default a temporary one.
    """
    async with _open(agent, config, workspace) as (factory, folder):
        request = (
            message
            if isinstance(message, TurnRequest)
            else TurnRequest("run_test", "test", message)
        )
        scope, turn, approvals, events = (
            trio.CancelScope(),
            Turn(),
            PendingApprovals(),
            EventFactory("run_test"),
        )
        queue = _RecordingQueue(stop_after, scope.cancel)
        threads = trio.CapacityLimiter(1), trio.CapacityLimiter(1)
        runtime = AgentRuntime(factory, *threads, grace_seconds, config)
        runner = AgentRunner(
            runtime, AgentContext(request, folder, config), queue, events, approvals
        )

        async def consume() -> None:
            with suppress(trio.EndOfChannel):
                while True:
                    for event in await queue.receive():
                        turn.take(event)
                        if isinstance(event, ApprovalRequest):
                            choice = decide if isinstance(decide, Choice) else decide(event)
                            decision = Decision(choice, AnsweredBy.CLIENT)
                            turn.take(ApprovalAnswered(event.approval_id, choice, decision.by))
                            approvals.resolve(event.approval_id, decision)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            with scope:
                await runner.run(lambda: str(reason), lambda: None)
        turn.cancel(reason)  # does nothing if it has ended
        recorded = tuple(
            Text(event) if isinstance(event, str) else event
            for event in queue.emitted
            if not isinstance(event, Finished | AgentFailed)
        )
        return AgentRun(recorded, turn.outcome, turn.text, runner.thread_abandoned)


async def check_cancellation(
    agent: AnyAgent,
    message: str | TurnRequest = "hello",
    *,
    grace_seconds: float = 1.0,
    **options: Any,
) -> list[AgentRun]:
    """Run an agent to its end, then again for each event it emits, cancelled right after that event.

    The agent should emit the same events each time. Returns the cancelled runs, one for each point.

    Args:
        agent: a factory or a provider, so that every run has a new agent.
        message: as for :func:`run_agent`.
        grace_seconds: how long the agent may take to stop.
        options: as for :func:`run_agent`.

    Raises:
        AssertionError: the agent did not stop in time.
    """
    whole = await run_agent(agent, message, grace_seconds=grace_seconds, **options)
    runs = []
    for count in range(len(whole.events) + 1):
        run = await run_agent(
            agent, message, stop_after=count, grace_seconds=grace_seconds, **options
        )
        if run.is_abandoned:
            last = f", which was {run.events[-1]!r}" if run.events else ""
            raise AssertionError(f"the agent did not stop after event {count}{last}")
        runs.append(run)
    return runs


@asynccontextmanager
async def _open(
    agent: AnyAgent, config: AgentConfig, workspace: Path | None
) -> AsyncIterator[tuple[AgentFactory, Path]]:
    if hasattr(agent, "run") and not isinstance(agent, type):
        made = cast("Agent | AsyncAgent", agent)
        found: AgentFactory | AgentProvider = lambda _context: made  # noqa: E731
    else:
        found = cast("AgentFactory | AgentProvider", agent)
    with tempfile.TemporaryDirectory() as temporary:
        folder = workspace if workspace is not None else Path(temporary)
        async with open_agent(found, config, folder) as factory:
            yield factory, folder


class _RecordingQueue(EventQueue):
    """Keeps everything that is emitted, and cancels the run after a number of events.

    A thread that emits the last event goes on when the queue is closed, so that its next event is
    refused for certain.
    """

    def __init__(self, stop_after: int | None, cancel: Callable[[], None]) -> None:
        super().__init__()
        self.emitted: list[EventOrText] = []
        self._stop_after, self._cancel = stop_after, cancel
        self._closed = threading.Event()
        self._token = trio.lowlevel.current_trio_token()
        if stop_after == 0:
            cancel()

    def put(self, event: EventOrText) -> None:
        super().put(event)
        self._cancel_when_due()

    def try_put(self, event: EventOrText) -> bool:
        has_room = super().try_put(event)
        if has_room:
            self._cancel_when_due()
        return has_room

    def put_nowait(self, event: EventOrText) -> bool:
        has_room = super().put_nowait(event)
        if has_room and len(self.emitted) == self._stop_after:
            self._cancel()
        return has_room

    def close(self) -> None:
        super().close()
        self._closed.set()

    def _append(self, event: EventOrText) -> None:
        super()._append(event)
        self.emitted.append(event)

    def _cancel_when_due(self) -> None:
        if self._stop_after is not None and len(self.emitted) >= self._stop_after:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._cancel)
            self._closed.wait()
