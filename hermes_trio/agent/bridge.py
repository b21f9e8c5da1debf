"""Between the agent's world and Trio: starts the agent, carries its last word, and calls it off.

An agent is made in a thread, because making one may take seconds, unless its factory is marked as quick. A plain agent
then runs in that same thread; an ``async`` one is handed back and runs as a Trio task.

Called off means: the inbox closes (whatever the agent says next, or still asks, raises in its own thread), the agent's ``interrupt``
is called, and the agent has a grace period to return. A thread that ignores all of that is abandoned: it cannot be
killed, but nobody waits for it any more, and its slot stays taken until it really ends.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from typing import cast

import trio
from attrs import frozen

from hermes_trio.agent.config import DEFAULT_CONFIG, AgentConfig
from hermes_trio.agent.contract import Agent, AgentContext, AgentFactory, AsyncAgent
from hermes_trio.agent.desk import Desk
from hermes_trio.agent.inbox import Inbox
from hermes_trio.agent.news import Sign
from hermes_trio.agent.port import AsyncPort, Port, Words
from hermes_trio.agent.steps import in_steps
from hermes_trio.core.events import Crashed, Event, Finished, Result
from hermes_trio.core.plain import text_of

_NO_THREAD = "The server has no thread left to run the agent in."


@frozen
class AgentHost:
    """Where agents run: how they are made, which threads they may use, and how long they may take to stop."""

    factory: AgentFactory
    threads: trio.CapacityLimiter
    interrupts: trio.CapacityLimiter
    grace_seconds: float = 5.0
    config: AgentConfig = DEFAULT_CONFIG  # what each of them is told


class _Life(Enum):
    """Of the worker thread. It can be called off before it began: then it must never begin."""

    WAITING = "waiting"
    WORKING = "working"
    OVER = "over"
    CALLED_OFF = "called off"


class _Part(Enum):
    """What a turn is made of; it is gone when both are."""

    THREAD = "thread"
    TASK = "task"


_BOTH = frozenset(_Part)


@lru_cache
def _is_coroutine_function(function: object) -> bool:
    return inspect.iscoroutinefunction(function)


def _runs_as_task(agent: Agent | AsyncAgent) -> bool:
    """Whether it is asynchronous. A method is that of all agents of its class, and looked at once."""
    method = getattr(agent.run, "__func__", None)
    return inspect.iscoroutinefunction(agent.run) if method is None else _is_coroutine_function(method)


class Bridge:
    """One agent's turn in Trio's terms. Made in a Trio task."""

    def __init__(
        self, host: AgentHost, context: AgentContext, inbox: Inbox, words: Words, desk: Desk
    ) -> None:
        self._host, self._context = host, context
        self._inbox, self._words, self._desk = inbox, words, desk
        self._port: Port | None = None  # for an agent in a thread
        self._token: trio.lowlevel.TrioToken | None = None  # to tell, when called off
        self._lock = threading.Lock()
        self._life = _Life.WAITING
        self._agent: Agent | AsyncAgent | None = None
        self._is_async = False  # what is known of the agent
        self._thread_over = Sign()
        self._parts = set(_BOTH)

    @property
    def is_left_behind(self) -> bool:
        """Whether the agent's thread was given up: it goes on, and nobody listens."""
        return self._life is _Life.CALLED_OFF and not self._thread_over.is_set()

    async def run(self, why: Callable[[], str], on_gone: Callable[[], None]) -> None:
        """Run the agent to its end.

        Args:
            why: tells the reason when the run is cancelled.
            on_gone: called in the Trio thread when nothing of the agent is left, however long that takes.
        """
        self._on_gone = on_gone
        try:
            if self._needs_thread():
                await self._host_thread()
            if self._is_async:
                await self._in_task(cast("AsyncAgent", self._agent))
        except trio.Cancelled:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + self._host.grace_seconds):
                await self._call_off(why())
            raise
        finally:
            self._inbox.finish()
            self._desk.close()
            self._part_over(_Part.TASK)

    def _needs_thread(self) -> bool:
        """Make an agent that is quickly made, here and now; then only one that blocks needs a thread."""
        if not getattr(self._host.factory, "is_quick", False):
            return True
        try:
            self._take(self._host.factory(self._context))
        except Exception as error:  # noqa: BLE001 - an agent may raise anything; it ends its own run only
            self._inbox.post(_crashed(error, self._words))
        if self._agent is not None and not self._is_async:
            return True
        self._part_over(_Part.THREAD)
        return False

    def _take(self, agent: Agent | AsyncAgent) -> None:
        self._agent, self._is_async = agent, _runs_as_task(agent)

    async def _host_thread(self) -> None:
        try:
            await trio.to_thread.run_sync(self._in_thread, abandon_on_cancel=True, limiter=self._host.threads)
        except RuntimeError:
            # The system has no thread left. Nothing that an agent raises comes this way.
            self._inbox.post(Crashed(_NO_THREAD, "RuntimeError", self._words.now()))
        self._part_over(_Part.THREAD)

    # -- in the thread --

    def _in_thread(self) -> None:
        if not self._begin():
            return
        try:
            self._make_and_run()
        except BaseException as error:  # noqa: BLE001, ASYNC103 - an agent may raise anything; it ends its own run only
            self._inbox.post(_crashed(error, self._words))
        self._end()

    def _begin(self) -> bool:
        with self._lock:
            if self._life is _Life.CALLED_OFF:
                return False
            self._life = _Life.WORKING
            return True

    def _make_and_run(self) -> None:
        agent = self._agent or self._host.factory(self._context)
        with self._lock:
            self._take(agent)
            self._port = port = Port(self._inbox, self._words, self._desk)
            called_off = self._life is _Life.CALLED_OFF
        if not called_off and not self._is_async:
            result = cast("Agent", agent).run(self._context.turn, port)
            self._inbox.post(_finished(result, self._words))

    def _end(self) -> None:
        """Whoever waits for the thread hears of its end by that. Once it is called off, nobody does, and it has to tell."""
        with self._lock:
            if self._token is None:
                self._life = _Life.OVER
                return
        # An abandoned thread may outlive the server: then there is no slot to free any more.
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._part_over, _Part.THREAD)

    # -- in the Trio thread --

    async def _in_task(self, agent: AsyncAgent) -> None:
        try:
            port = AsyncPort(self._inbox, self._words, self._desk)
            result = await in_steps(agent.run(self._context.turn, port), self._inbox)
        except Exception as error:  # noqa: BLE001 - see above; cancellation passes
            self._inbox.post(_crashed(error, self._words))
        else:
            self._inbox.post(_finished(result, self._words))

    def _part_over(self, part: _Part) -> None:
        self._parts.discard(part)
        if part is _Part.THREAD:
            self._thread_over.set()
        if not self._parts:
            self._on_gone()

    async def _call_off(self, reason: str) -> None:
        self._inbox.close()
        self._desk.close()
        with self._lock:
            is_working = self._life is _Life.WORKING
            self._life = _Life.CALLED_OFF
            self._token = trio.lowlevel.current_trio_token()
            if self._port is not None:
                self._port.stop()
        if is_working:
            await self._interrupt(reason)
            await self._thread_over.wait()
        else:
            self._part_over(_Part.THREAD)

    async def _interrupt(self, reason: str) -> None:
        interrupt = getattr(self._agent, "interrupt", None)
        if interrupt is not None:
            # Somebody else's code: on the loop it could block everybody. Where no thread can be had, the closed inbox
            # has to do.
            with suppress(RuntimeError):
                await trio.to_thread.run_sync(
                    _quietly, interrupt, reason, abandon_on_cancel=True, limiter=self._host.interrupts
                )


def _quietly(interrupt: Callable[[str], object], reason: str) -> None:
    # A failing interrupt is as good as an ignored one: the grace period bounds it.
    with suppress(Exception):
        interrupt(reason)


def _finished(result: object, words: Words) -> Event:
    match result:
        case Result():
            return Finished(result, words.now())
        case str():
            return Finished(Result(result), words.now())
        case None:
            return Finished(Result(), words.now())
    return Crashed(
        f"run() returned {type(result).__name__}, not a Result or a text", "TypeError", words.now()
    )


def _crashed(error: BaseException, words: Words) -> Event:
    return Crashed(text_of(error) or type(error).__name__, type(error).__name__, words.now())
