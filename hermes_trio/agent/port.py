"""An agent's mouthpiece, in two forms: for threads and for Trio tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import Any, TypeVar

import trio
from attrs import define

from hermes_trio.agent.desk import Desk
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

Mouthpiece = TypeVar("Mouthpiece")


GIVE_WAY = 64  # how often something is said until the others have their turn


class Words:
    """From the words of an agent to events: copies what could change later, takes the time, makes ids."""

    def __init__(self, run_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._run_id = run_id
        self._numbers = count(1)
        self._questions = count(1)

    def now(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._began

    def new_call_id(self) -> str:
        """An id that is unique in this run, and a function of it."""
        return f"call_{self._run_id[-12:]}_{next(self._numbers)}"

    def started(self, call_id: object, name: object, args: object) -> Event:
        return ToolStarted(safe_str(call_id or ""), safe_str(name), _arguments(args), self.now())

    def noticed(self, name: object, args: object) -> Event:
        return ToolAnnounced(safe_str(name), _arguments(args), self.now())

    def wanted(
        self,
        command: object,
        description: object,
        patterns: Iterable[object],
        call_id: object,
        permanent: bool,
    ) -> ApprovalRequest:
        """A question. What it shows to a person is masked; without patterns, an answer is remembered by the command."""
        return ApprovalRequest(
            f"appr_{self._run_id[-12:]}_{next(self._questions)}",
            safe_str(call_id),
            redact(safe_str(command)),
            redact(safe_str(description)),
            tuple(map(safe_str, patterns)) or (safe_str(command),),
            bool(permanent),
            at=self.now(),
        )

    def completed(self, call_id: object, result: object, is_error: bool) -> Event:
        return ToolCompleted(safe_str(call_id), _result(result), bool(is_error), self.now())


def _arguments(args: object) -> Mapping[str, Any]:
    copy = to_jsonable(args)
    return copy if isinstance(copy, dict) else {} if copy is None else {"value": copy}


def _result(result: object) -> str:
    return "" if result is None else safe_str(result)


@define
class ToolRun:
    """A tool call inside a ``with say.tool(...)`` block."""

    call_id: str
    result: object = ""
    is_error: bool = False


class Port:
    """For agents in threads. Every method may be called from any thread, and waits while the reader is behind."""

    def __init__(self, queue: EventQueue, words: Words, desk: Desk) -> None:
        self._queue, self._words, self._desk = queue, words, desk
        self._stopped = threading.Event()

    def in_form(self, kind: Callable[[EventQueue, Words, Desk], Mouthpiece]) -> Mouthpiece:
        """The same mouthpiece in another form, for those who cannot wait as a thread does."""
        return kind(self._queue, self._words, self._desk)

    @property
    def stopped(self) -> bool:
        """Whether the run is over; a long computation looks at this now and then."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Called by the bridge: the run is over."""
        self._stopped.set()

    def sleep(self, seconds: float) -> None:
        """Sleep, but not beyond the end of the run.

        Raises:
            RunEnded: the run ended meanwhile.
        """
        if self._stopped.wait(seconds):
            raise RunEnded

    def text(self, text: str | None) -> None:
        """Say a piece of the answer. ``None`` is a display signal of some agents and means nothing here."""
        if text:
            self._queue.put(text if type(text) is str else safe_str(text))

    def reasoning(self, text: str | None) -> None:
        """Say a piece of thinking."""
        if text:
            self._queue.put(Reasoning(safe_str(text)))

    def tool_started(self, call_id: str, name: str, args: Mapping[str, Any] | None = None) -> None:
        """A tool call begins."""
        self._queue.put(self._words.started(call_id, name, args))

    def tool_noticed(self, name: str, args: Mapping[str, Any] | None = None) -> None:
        """A tool call begins, and neither its id nor its end will be told."""
        self._queue.put(self._words.noticed(name, args))

    def tool_output(self, call_id: str, text: str) -> None:
        """A running tool call printed something."""
        self._queue.put(ToolOutput(safe_str(call_id), safe_str(text)))

    def tool_completed(self, call_id: str, result: object = "", is_error: bool = False) -> None:
        """A tool call ends."""
        self._queue.put(self._words.completed(call_id, result, is_error))

    def client_call(self, call_id: str, name: str, arguments: str = "{}") -> None:
        """Call a tool of the client's. Then return: the client runs it and comes back with the result.

        Args:
            call_id: what the result will name.
            name: of the tool, as the request has it.
            arguments: the JSON text.
        """
        self._queue.put(ClientCall(safe_str(call_id or ""), safe_str(name), safe_str(arguments)))

    def ask(
        self,
        command: str,
        description: str = "",
        patterns: Iterable[str] = (),
        call_id: str = "",
        allow_permanent: bool = True,
    ) -> Decision:
        """Ask whether something may be done, and wait for the answer.

        Args:
            command: what is to be done, for a person to read.
            description: why it is asked, or what is dangerous about it.
            patterns: what the answers `session` and `always` are remembered by; the command itself if there are none.
            call_id: the tool call that it belongs to.
            allow_permanent: whether `always` is offered.

        Raises:
            RunEnded: the run ended before there was an answer.
        """
        wish = self._words.wanted(command, description, patterns, call_id, allow_permanent)
        waiting = self._desk.open(wish.approval_id)
        self._queue.put(wish)
        return waiting.wait()

    @contextmanager
    def tool(self, name: str, args: Mapping[str, Any] | None = None) -> Iterator[ToolRun]:
        """Show a tool call for as long as the block runs. An exception ends it as failed and goes on."""
        call = ToolRun(self._words.new_call_id())
        self.tool_started(call.call_id, name, args)
        try:
            yield call
        except Exception as error:
            if not isinstance(error, RunEnded):
                self.tool_completed(call.call_id, f"{type(error).__name__}: {error}", is_error=True)
            raise
        self.tool_completed(call.call_id, call.result, call.is_error)


class AsyncPort:
    """For agents that are Trio tasks. Every method waits while the reader is behind, and can be cancelled.

    Not every call lets the other tasks work: what is said in one go is better sent in one piece, and that happens when the agent
    waits for something.
    """

    def __init__(self, queue: EventQueue, words: Words, desk: Desk) -> None:
        self._queue, self._words, self._desk = queue, words, desk
        self._said = 0

    async def text(self, text: str | None) -> None:
        """Say a piece of the answer."""
        if text:
            await self._put(text if type(text) is str else safe_str(text))

    async def reasoning(self, text: str | None) -> None:
        """Say a piece of thinking."""
        if text:
            await self._put(Reasoning(safe_str(text)))

    async def tool_started(self, call_id: str, name: str, args: Mapping[str, Any] | None = None) -> None:
        """A tool call begins."""
        await self._put(self._words.started(call_id, name, args))

    async def tool_noticed(self, name: str, args: Mapping[str, Any] | None = None) -> None:
        """A tool call begins, and neither its id nor its end will be told."""
        await self._put(self._words.noticed(name, args))

    async def tool_output(self, call_id: str, text: str) -> None:
        """A running tool call printed something."""
        await self._put(ToolOutput(safe_str(call_id), safe_str(text)))

    async def tool_completed(self, call_id: str, result: object = "", is_error: bool = False) -> None:
        """A tool call ends."""
        await self._put(self._words.completed(call_id, result, is_error))

    async def client_call(self, call_id: str, name: str, arguments: str = "{}") -> None:
        """Call a tool of the client's. See :meth:`Port.client_call`."""
        await self._put(ClientCall(safe_str(call_id or ""), safe_str(name), safe_str(arguments)))

    async def ask(
        self,
        command: str,
        description: str = "",
        patterns: Iterable[str] = (),
        call_id: str = "",
        allow_permanent: bool = True,
    ) -> Decision:
        """Ask whether something may be done, and wait for the answer. See :meth:`Port.ask`."""
        return await self._ask(self._words.wanted(command, description, patterns, call_id, allow_permanent))

    @asynccontextmanager
    async def tool(self, name: str, args: Mapping[str, Any] | None = None) -> AsyncIterator[ToolRun]:
        """Show a tool call for as long as the block runs. An exception ends it as failed and goes on."""
        call = ToolRun(self._words.new_call_id())
        await self.tool_started(call.call_id, name, args)
        try:
            yield call
        except Exception as error:
            # A cancellation here replaces the error: the run is over then, and the call with it.
            failure = f"{type(error).__name__}: {error}"
            await self.tool_completed(call.call_id, failure, is_error=True)  # noqa: ASYNC120
            raise
        await self.tool_completed(call.call_id, call.result, call.is_error)

    async def _ask(self, wish: ApprovalRequest) -> Decision:
        waiting = self._desk.open(wish.approval_id)
        await self._put(wish)
        return await waiting.wait_in_trio()

    async def _put(self, event: EventOrText) -> None:
        while not self._queue.put_nowait(event):
            await self._queue.wait_space()
        self._said += 1
        if self._said % GIVE_WAY:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
