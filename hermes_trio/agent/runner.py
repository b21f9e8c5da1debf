"""Run one agent for one turn: make it, run it in a thread or as a task, and cancel it.

An agent is made in a worker thread, because a factory may take seconds, unless the factory is
marked ``@nonblocking``. A synchronous agent then runs in that same thread; an asynchronous one runs
as a Trio task.

Cancelling means: the event queue closes, so that whatever the agent emits next raises in its own
thread; the agent's ``interrupt`` is called; and the agent has a grace period to return. A thread
that ignores all of that is abandoned. It cannot be killed, but nothing waits for it any more, and
its slot stays taken until it really ends.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import cast

import structlog
import trio
from attrs import frozen

from hermes_trio.agent.approvals import PendingApprovals
from hermes_trio.agent.emitter import AsyncEmitter, Emitter, EventFactory
from hermes_trio.agent.event_queue import EventQueue, RunEnded
from hermes_trio.agent.interface import (
    DEFAULT_CONFIG,
    Agent,
    AgentConfig,
    AgentContext,
    AgentFactory,
    AsyncAgent,
)
from hermes_trio.core.events import AgentFailed, Event, Finished, Result
from hermes_trio.core.outcome import Reason
from hermes_trio.core.shorten import safe_str

_ASYNCIO_HINT = "derive agents that use asyncio from hermes_trio.AsyncioAgent"
_NO_THREAD = "The server has no thread left to run the agent in."

log = structlog.get_logger(__name__)


@frozen
class AgentRuntime:
    """How agents are made, which threads they may use, and how long they may take to stop."""

    factory: AgentFactory
    threads: trio.CapacityLimiter
    interrupts: trio.CapacityLimiter
    grace_seconds: float = 5.0
    config: AgentConfig = DEFAULT_CONFIG

    @property
    def can_continue(self) -> bool:
        """Whether the agents continue an answer that has begun."""
        return bool(getattr(self.factory, "can_continue", False))


class _ThreadState(Enum):
    """The state of the worker thread. One that is cancelled before it began must never begin."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    CANCELLED = "cancelled"


class _Part(Enum):
    """What a turn uses; the agent has exited when neither is left."""

    THREAD = "thread"
    TASK = "task"


class AgentRunner:
    """One agent's turn. Create it in a Trio task, and ``run`` it once."""

    def __init__(
        self,
        runtime: AgentRuntime,
        context: AgentContext,
        queue: EventQueue,
        events: EventFactory,
        approvals: PendingApprovals,
    ) -> None:
        self._runtime, self._context = runtime, context
        self._queue, self._events, self._approvals = queue, events, approvals
        self._emitter: Emitter | None = None  # of an agent that runs in a thread
        # for a cancelled thread to report its end
        self._token: trio.lowlevel.TrioToken | None = None
        self._lock = threading.Lock()
        self._thread_state = _ThreadState.WAITING
        self._agent: Agent | AsyncAgent | None = None
        self._thread_ended = trio.Event()
        self._parts = set(_Part)

    @property
    def thread_abandoned(self) -> bool:
        """Whether the agent ignored its cancellation.

        Its thread goes on, and nothing waits for it.
        """
        return self._thread_state is _ThreadState.CANCELLED and not self._thread_ended.is_set()

    async def run(self, cancel_reason: Callable[[], str], on_exit: Callable[[], None]) -> None:
        """Run the agent to its end, then close the event queue.

        Args:
            cancel_reason: called when the run is cancelled; passed to the agent's ``interrupt``.
            on_exit: called in the Trio thread when nothing of the agent is left, however long that
                takes.
        """
        self._on_exit = on_exit
        try:
            if self._needs_thread():
                await self._run_thread()
            if self._agent is not None and _is_async(self._agent):
                await self._run_task(cast("AsyncAgent", self._agent))
        except trio.Cancelled:
            with trio.CancelScope(shield=True, relative_deadline=self._runtime.grace_seconds):
                await self._cancel(cancel_reason())
            raise
        finally:
            self._queue.close_send()
            self._approvals.close()
            self._end_part(_Part.TASK)
            if self.thread_abandoned:
                log.warning("an agent did not stop and was abandoned; its slot stays taken")

    def _needs_thread(self) -> bool:
        """Call a nonblocking factory here; then only a synchronous agent needs a thread."""
        if not getattr(self._runtime.factory, "is_nonblocking", False):
            return True
        try:
            self._agent = self._make_agent()
        except Exception as error:  # noqa: BLE001 - an agent may raise anything; it ends its own run only
            self._queue.put_final(self._failed(error))
        if self._agent is not None and not _is_async(self._agent):
            return True
        self._end_part(_Part.THREAD)
        return False

    def _make_agent(self) -> Agent | AsyncAgent:
        agent = self._runtime.factory(self._context)
        if not callable(getattr(agent, "run", None)):
            kind = type(agent).__name__
            raise TypeError(
                f"the factory made an object of type {kind!r}, which has no method 'run'"
            )
        return agent

    async def _run_thread(self) -> None:
        try:
            await trio.to_thread.run_sync(
                self._in_thread, abandon_on_cancel=True, limiter=self._runtime.threads
            )
        except RuntimeError:
            # The system cannot start another thread. Nothing that an agent raises gets here.
            log.error("no thread left to run an agent")
            self._queue.put_final(AgentFailed(_NO_THREAD, "RuntimeError", self._events.now()))
        self._end_part(_Part.THREAD)

    # -- in the worker thread --

    def _in_thread(self) -> None:
        with self._lock:
            if self._thread_state is _ThreadState.CANCELLED:
                return
            self._thread_state = _ThreadState.RUNNING
        try:
            self._make_and_run()
        except BaseException as error:  # noqa: BLE001, ASYNC103 - an agent may raise anything; it ends its own run only
            self._queue.put_final(self._failed(error))
        with self._lock:
            if self._token is None:
                self._thread_state = _ThreadState.ENDED
                return
        # Cancelled meanwhile: nothing awaits this thread. It may even outlive Trio, and then no
        # slot is left to free.
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._end_part, _Part.THREAD)

    def _make_and_run(self) -> None:
        agent = self._agent or self._make_agent()
        with self._lock:
            self._agent = agent
            self._emitter = emitter = Emitter(self._queue, self._events, self._approvals)
            is_cancelled = self._thread_state is _ThreadState.CANCELLED
        if not is_cancelled and not _is_async(agent):
            result = cast("Agent", agent).run(self._context.turn, emitter)
            self._queue.put_final(self._finished(result))

    # -- in the Trio thread --

    async def _run_task(self, agent: AsyncAgent) -> None:
        try:
            result = await agent.run(
                self._context.turn, AsyncEmitter(self._queue, self._events, self._approvals)
            )
        except Exception as error:  # noqa: BLE001 - an agent may raise anything; cancellation passes
            self._queue.put_final(self._failed(error))
        else:
            self._queue.put_final(self._finished(result))

    def _end_part(self, part: _Part) -> None:
        self._parts.discard(part)
        if part is _Part.THREAD:
            self._thread_ended.set()
        if not self._parts:
            self._on_exit()

    async def _cancel(self, reason: str) -> None:
        self._queue.close()
        self._approvals.close()
        with self._lock:
            is_running = self._thread_state is _ThreadState.RUNNING
            self._thread_state = _ThreadState.CANCELLED
            self._token = trio.lowlevel.current_trio_token()
            if self._emitter is not None:
                self._emitter.stop()
        if is_running:
            await self._interrupt(reason)
            await self._thread_ended.wait()
        else:
            self._end_part(_Part.THREAD)

    async def _interrupt(self, reason: str) -> None:
        interrupt = getattr(self._agent, "interrupt", None)
        if interrupt is None:
            return

        def call() -> None:
            # A failing interrupt is as good as an ignored one: the grace period bounds both.
            with suppress(Exception):
                interrupt(reason)

        # In a thread, because user code could block the event loop. Without one, the closed queue
        # has to do.
        with suppress(RuntimeError):
            await trio.to_thread.run_sync(
                call, abandon_on_cancel=True, limiter=self._runtime.interrupts
            )

    # -- the agent's last event --

    def _finished(self, result: object) -> Event:
        match result:
            case Result():
                return Finished(result, self._events.now())
            case str():
                return Finished(Result(result), self._events.now())
            case None:
                return Finished(Result(), self._events.now())
        kind = type(result).__name__
        log.error("an agent returned neither a Result nor a str", kind=kind)
        return AgentFailed(
            f"run() returned {kind}, not a Result or a text", "TypeError", self._events.now()
        )

    def _failed(self, error: BaseException) -> Event:
        """Log what an agent raised, with its traceback: clients learn the message only."""
        if _needs_asyncio(error):
            log.error("the agent raised an exception", exc_info=error, hint=_ASYNCIO_HINT)
        elif not isinstance(error, RunEnded):
            log.error("the agent raised an exception", exc_info=error)
        return AgentFailed(
            safe_str(error) or type(error).__name__, type(error).__name__, self._events.now()
        )


class Execution:
    """An agent at work, with what links it to a run. It may outlive the run that started it."""

    def __init__(
        self, queue: EventQueue, events: EventFactory, approvals: PendingApprovals
    ) -> None:
        self.queue, self.events, self.approvals = queue, events, approvals
        self.over = trio.Event()  # the agent has exited, or was abandoned
        self._scope = trio.CancelScope()
        self._reason = Reason.NONE

    @property
    def is_cancelled(self) -> bool:
        """Whether the agent was told to stop."""
        return self._scope.cancel_called

    def cancel(self, reason: Reason) -> None:
        """Interrupt the agent. The first reason counts."""
        self._reason = self._reason or reason
        self._scope.cancel(reason=str(reason))

    async def run(self, runner: AgentRunner, on_exit: Callable[[], None]) -> None:
        """Run the agent to its end, in a nursery that no run owns."""
        try:
            with self._scope:
                await runner.run(lambda: self._reason or Reason.SERVER_SHUTDOWN, on_exit)
        except Exception:
            log.exception("an agent runner failed")
        finally:
            self.over.set()


def _is_async(agent: Agent | AsyncAgent) -> bool:
    return inspect.iscoroutinefunction(agent.run)


def _needs_asyncio(error: BaseException) -> bool:
    """Return whether an exception is that of an asyncio function in a Trio task or a plain thread."""
    match error:
        case RuntimeError():
            return "no running event loop" in str(error) or "no current event loop" in str(error)
        case TypeError():
            return "unrecognized yield message" in str(error)  # from Trio, for an asyncio future
        case _:
            return False
