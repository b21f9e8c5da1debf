"""What an agent emits through.

:class:`Emitter` for threads, :class:`AsyncEmitter` for Trio tasks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from itertools import count
from typing import Any, TypeVar

import trio
from attrs import define

from hermes_trio.agent.approvals import PendingApprovals
from hermes_trio.agent.event_queue import EventQueue, RunEnded
from hermes_trio.core.approvals import Decision
from hermes_trio.core.events import (
    ApprovalRequest,
    ClientCall,
    Event,
    EventOrText,
    Reasoning,
    ToolAnnounced,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
)
from hermes_trio.core.redact import redact
from hermes_trio.core.shorten import safe_str, to_jsonable
from hermes_trio.tracing import ToolSpans

EmitterT = TypeVar("EmitterT")

# An asynchronous agent yields to other tasks once per so many events: what is emitted in one go is
# sent in one piece.
EVENTS_PER_CHECKPOINT = 64


class EventFactory:
    """Makes events of what an agent passes.

    Copies mutable values, takes the time, and makes ids.
    """

    def __init__(self, run_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._run_id = run_id
        self._call_numbers = count(1)
        self._approval_numbers = count(1)
        self.tool_spans: ToolSpans | None = None  # of the run, if it is traced

    def now(self) -> float:
        """Return the seconds since the run began."""
        return self._clock() - self._began

    def restart(self) -> None:
        """Count the seconds from now on: another run continues with the agent."""
        self._began = self._clock()

    def new_call_id(self) -> str:
        """Return an id that is unique among all runs and can be reproduced from this run's id."""
        return f"call_{self._run_id[-12:]}_{next(self._call_numbers)}"

    def tool_started(self, call_id: object, name: object, args: object) -> Event:
        if not call_id:
            return self.tool_announced(name, args)
        started = ToolStarted(safe_str(call_id), safe_str(name), _arguments(args), self.now())
        if self.tool_spans is not None:
            self.tool_spans.started(started.call_id, started.name)
        return started

    def tool_announced(self, name: object, args: object, call_id: object = "") -> Event:
        shown = safe_str(call_id) if call_id else self.new_call_id()
        return ToolAnnounced(safe_str(name), _arguments(args), self.now(), shown)

    def client_call(self, call_id: object, name: object, arguments: object) -> Event:
        given = safe_str(call_id) if call_id else self.new_call_id()
        return ClientCall(given, safe_str(name), safe_str(arguments))

    def approval_request(
        self,
        command: object,
        description: object,
        patterns: Iterable[object],
        call_id: object,
        permanent: bool,
    ) -> ApprovalRequest:
        """Make an approval request.

        Secrets are masked; without patterns, the decision is remembered by the command.
        """
        return ApprovalRequest(
            f"appr_{self._run_id[-12:]}_{next(self._approval_numbers)}",
            safe_str(call_id),
            redact(safe_str(command)),
            redact(safe_str(description)),
            tuple(map(safe_str, patterns)) or (safe_str(command),),
            bool(permanent),
            at=self.now(),
        )

    def tool_completed(self, call_id: object, result: object, is_error: bool) -> Event:
        text = "" if result is None else safe_str(result)
        if self.tool_spans is not None:
            self.tool_spans.completed(safe_str(call_id), bool(is_error))
        return ToolCompleted(safe_str(call_id), text, bool(is_error), self.now())

    def tool_context(self, call_id: str) -> AbstractContextManager[object]:
        return nullcontext() if self.tool_spans is None else self.tool_spans.current(call_id)


def _arguments(args: object) -> Mapping[str, Any]:
    copy = to_jsonable(args)
    return copy if isinstance(copy, dict) else {} if copy is None else {"value": copy}


@define
class ToolCallHandle:
    """The tool call of a ``with emitter.tool(...)`` block.

    Set ``result``, and ``is_error`` if it failed.
    """

    call_id: str
    result: object = ""
    is_error: bool = False


class Emitter:
    """Emits the events of an agent that runs in a thread.

    Every method may be called from any thread, and blocks while the client is behind. After the end
    of the run every method raises :class:`RunEnded`; let it pass.
    """

    def __init__(
        self, queue: EventQueue, events: EventFactory, approvals: PendingApprovals
    ) -> None:
        self._queue, self._events, self._approvals = queue, events, approvals
        self._stopped = threading.Event()

    def as_type(
        self, kind: Callable[[EventQueue, EventFactory, PendingApprovals], EmitterT]
    ) -> EmitterT:
        """Return an emitter of another type for the same run, for agents that cannot block a thread."""
        return kind(self._queue, self._events, self._approvals)

    @property
    def stopped(self) -> bool:
        """Whether the run is over. A long computation should check this from time to time."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Mark the run as over. Called by the agent runner."""
        self._stopped.set()

    def sleep(self, seconds: float) -> None:
        """Sleep, or until the end of the run.

        Raises:
            RunEnded: the run has ended.
        """
        if self._stopped.wait(seconds):
            raise RunEnded

    def text(self, text: str | None) -> None:
        """Emit a piece of the answer. ``None`` and ``""`` are ignored."""
        if text:
            self._queue.put(text if type(text) is str else safe_str(text))

    def reasoning(self, text: str | None) -> None:
        """Emit a piece of reasoning."""
        if text:
            self._queue.put(Reasoning(safe_str(text)))

    def tool_started(self, call_id: str, name: str, args: Mapping[str, Any] | None = None) -> None:
        """Report the start of a tool call."""
        self._queue.put(self._events.tool_started(call_id, name, args))

    def tool_announced(
        self, name: str, args: Mapping[str, Any] | None = None, call_id: str = ""
    ) -> None:
        """Report the start of a tool call that has no id, and whose end will not be reported.

        If the same tool is started under an id within a tenth of a second, that is the same call,
        and it is shown under that id.

        Args:
            name: the tool.
            args: its arguments.
            call_id: under which to show the call otherwise; by default one that is unique.
        """
        self._queue.put(self._events.tool_announced(name, args, call_id))

    def tool_output(self, call_id: str, text: str) -> None:
        """Report output of a running tool call."""
        self._queue.put(ToolOutput(safe_str(call_id), safe_str(text)))

    def tool_completed(self, call_id: str, result: object = "", is_error: bool = False) -> None:
        """Report the end of a tool call."""
        self._queue.put(self._events.tool_completed(call_id, result, is_error))

    def tool_context(self, call_id: str) -> AbstractContextManager[object]:
        """Make the OpenTelemetry span of a running tool call the current one for a block.

        The blocks of :meth:`tool` have that already.
        """
        return self._events.tool_context(call_id)

    def client_call(self, call_id: str, name: str, arguments: str = "{}") -> None:
        """Call a tool of the client.

        Then return: the client runs it and sends the result with its next request.

        Args:
            call_id: the id that the result will refer to.
            name: the tool's name, as in the request.
            arguments: the arguments as JSON text.
        """
        self._queue.put(self._events.client_call(call_id, name, arguments))

    def ask(
        self,
        command: str,
        description: str = "",
        patterns: Iterable[str] = (),
        call_id: str = "",
        allow_permanent: bool = True,
    ) -> Decision:
        """Request approval of an action, and wait for the decision.

        Args:
            command: the action, for a person to read.
            description: why approval is needed, or what is dangerous.
            patterns: what the decisions `session` and `always` are remembered by; by default the
                command.
            call_id: the tool call that the action belongs to.
            allow_permanent: whether `always` is offered.

        Raises:
            RunEnded: the run ended before there was a decision.
        """
        request = self._events.approval_request(
            command, description, patterns, call_id, allow_permanent
        )
        future = self._approvals.open(request.approval_id)
        self._queue.put(request)
        return future.wait()

    @contextmanager
    def tool(self, name: str, args: Mapping[str, Any] | None = None) -> Iterator[ToolCallHandle]:
        """Report a tool call around a block.

        An exception ends the call as failed, and propagates.
        """
        call = ToolCallHandle(self._events.new_call_id())
        self.tool_started(call.call_id, name, args)
        try:
            with self.tool_context(call.call_id):
                yield call
        except Exception as error:
            if not isinstance(error, RunEnded):
                self.tool_completed(call.call_id, f"{type(error).__name__}: {error}", is_error=True)
            raise
        self.tool_completed(call.call_id, call.result, call.is_error)


class AsyncEmitter:
    """Emits the events of an agent that is a Trio task.

    Every method waits while the client is behind, and can be cancelled. Not every call yields to
    other tasks: events that are emitted without another ``await`` between them are delivered
    together.
    """

    def __init__(
        self, queue: EventQueue, events: EventFactory, approvals: PendingApprovals
    ) -> None:
        self._queue, self._events, self._approvals = queue, events, approvals
        self._emitted = 0

    async def text(self, text: str | None) -> None:
        """Emit a piece of the answer. ``None`` and ``""`` are ignored."""
        if text:
            await self._put(text if type(text) is str else safe_str(text))

    async def reasoning(self, text: str | None) -> None:
        """Emit a piece of reasoning."""
        if text:
            await self._put(Reasoning(safe_str(text)))

    async def tool_started(
        self, call_id: str, name: str, args: Mapping[str, Any] | None = None
    ) -> None:
        """Report the start of a tool call."""
        await self._put(self._events.tool_started(call_id, name, args))

    async def tool_announced(
        self, name: str, args: Mapping[str, Any] | None = None, call_id: str = ""
    ) -> None:
        """Report the start of a tool call that has no id. See :meth:`Emitter.tool_announced`."""
        await self._put(self._events.tool_announced(name, args, call_id))

    async def tool_output(self, call_id: str, text: str) -> None:
        """Report output of a running tool call."""
        await self._put(ToolOutput(safe_str(call_id), safe_str(text)))

    async def tool_completed(
        self, call_id: str, result: object = "", is_error: bool = False
    ) -> None:
        """Report the end of a tool call."""
        await self._put(self._events.tool_completed(call_id, result, is_error))

    def tool_context(self, call_id: str) -> AbstractContextManager[object]:
        """Make the span of a tool call the current one. See :meth:`Emitter.tool_context`."""
        return self._events.tool_context(call_id)

    async def client_call(self, call_id: str, name: str, arguments: str = "{}") -> None:
        """Call a tool of the client. See :meth:`Emitter.client_call`."""
        await self._put(self._events.client_call(call_id, name, arguments))

    async def ask(
        self,
        command: str,
        description: str = "",
        patterns: Iterable[str] = (),
        call_id: str = "",
        allow_permanent: bool = True,
    ) -> Decision:
        """Request approval of an action, and wait for the decision. See :meth:`Emitter.ask`."""
        return await self._ask(
            self._events.approval_request(command, description, patterns, call_id, allow_permanent)
        )

    @asynccontextmanager
    async def tool(
        self, name: str, args: Mapping[str, Any] | None = None
    ) -> AsyncIterator[ToolCallHandle]:
        """Report a tool call around a block.

        An exception ends the call as failed, and propagates.
        """
        call = ToolCallHandle(self._events.new_call_id())
        await self.tool_started(call.call_id, name, args)
        try:
            with self.tool_context(call.call_id):
                yield call
        except Exception as error:
            # A cancellation here replaces the error: the run is over then, and the call with it.
            failure = f"{type(error).__name__}: {error}"
            await self.tool_completed(call.call_id, failure, is_error=True)  # noqa: ASYNC120
            raise
        await self.tool_completed(call.call_id, call.result, call.is_error)

    async def _ask(self, request: ApprovalRequest) -> Decision:
        future = self._approvals.open(request.approval_id)
        await self._put(request)
        return await future.wait_async()

    async def _put(self, event: EventOrText) -> None:
        while not self._queue.put_nowait(event):
            await self._queue.wait_space()
        self._emitted += 1
        if self._emitted % EVENTS_PER_CHECKPOINT:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
