"""An agent's mouthpiece, in two forms: for threads and for Trio tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import Any

import trio
from attrs import define

from hermes_trio.agent.inbox import Inbox, RunEnded
from hermes_trio.core.events import (
    Event,
    Reasoning,
    Text,
    ToolCompleted,
    ToolNoticed,
    ToolOutput,
    ToolStarted,
)
from hermes_trio.core.plain import plain, text_of


class Words:
    """From the words of an agent to events: copies what could change later, takes the time, makes ids."""

    def __init__(self, run_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._run_id = run_id
        self._numbers = count(1)

    def now(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._began

    def new_call_id(self) -> str:
        """An id that is unique in this run, and a function of it."""
        return f"call_{self._run_id[-12:]}_{next(self._numbers)}"

    def started(self, call_id: object, name: object, args: object) -> Event:
        return ToolStarted(text_of(call_id or ""), text_of(name), _arguments(args), self.now())

    def noticed(self, name: object, args: object) -> Event:
        return ToolNoticed(text_of(name), _arguments(args), self.now())

    def completed(self, call_id: object, result: object, is_error: bool) -> Event:
        return ToolCompleted(text_of(call_id), _result(result), bool(is_error), self.now())


def _arguments(args: object) -> Mapping[str, Any]:
    copy = plain(args)
    return copy if isinstance(copy, dict) else {} if copy is None else {"value": copy}


def _result(result: object) -> str:
    return "" if result is None else text_of(result)


@define
class ToolRun:
    """A tool call inside a ``with say.tool(...)`` block."""

    call_id: str
    result: object = ""
    is_error: bool = False


class Port:
    """For agents in threads. Every method may be called from any thread, and waits while the reader is behind."""

    def __init__(self, inbox: Inbox, words: Words) -> None:
        self._inbox, self._words = inbox, words
        self._stopped = threading.Event()

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
            self._inbox.put(Text(text_of(text)))

    def reasoning(self, text: str | None) -> None:
        """Say a piece of thinking."""
        if text:
            self._inbox.put(Reasoning(text_of(text)))

    def tool_started(self, call_id: str, name: str, args: Mapping[str, Any] | None = None) -> None:
        """A tool call begins."""
        self._inbox.put(self._words.started(call_id, name, args))

    def tool_noticed(self, name: str, args: Mapping[str, Any] | None = None) -> None:
        """A tool call begins, and neither its id nor its end will be told."""
        self._inbox.put(self._words.noticed(name, args))

    def tool_output(self, call_id: str, text: str) -> None:
        """A running tool call printed something."""
        self._inbox.put(ToolOutput(text_of(call_id), text_of(text)))

    def tool_completed(self, call_id: str, result: object = "", is_error: bool = False) -> None:
        """A tool call ends."""
        self._inbox.put(self._words.completed(call_id, result, is_error))

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
    """For agents that are Trio tasks. Every method is a checkpoint and waits while the reader is behind."""

    def __init__(self, inbox: Inbox, words: Words) -> None:
        self._inbox, self._words = inbox, words

    async def text(self, text: str | None) -> None:
        """Say a piece of the answer."""
        if text:
            await self._put(Text(text_of(text)))

    async def reasoning(self, text: str | None) -> None:
        """Say a piece of thinking."""
        if text:
            await self._put(Reasoning(text_of(text)))

    async def tool_started(self, call_id: str, name: str, args: Mapping[str, Any] | None = None) -> None:
        """A tool call begins."""
        await self._put(self._words.started(call_id, name, args))

    async def tool_noticed(self, name: str, args: Mapping[str, Any] | None = None) -> None:
        """A tool call begins, and neither its id nor its end will be told."""
        await self._put(self._words.noticed(name, args))

    async def tool_output(self, call_id: str, text: str) -> None:
        """A running tool call printed something."""
        await self._put(ToolOutput(text_of(call_id), text_of(text)))

    async def tool_completed(self, call_id: str, result: object = "", is_error: bool = False) -> None:
        """A tool call ends."""
        await self._put(self._words.completed(call_id, result, is_error))

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

    async def _put(self, event: Event) -> None:
        await trio.lowlevel.checkpoint()
        while not self._inbox.try_put(event):
            await self._inbox.wait_space()
