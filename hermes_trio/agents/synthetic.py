"""An agent for benchmarks and tests that generates exactly the load its message asks for.

The message is a list of ``name=value`` words in any order, all optional::

    tokens=100   pieces of text
    rate=0       pieces of text per second; 0 is as fast as possible
    tools=0      tool calls, spread evenly between the pieces of text
    size=20      characters of each piece and of each tool result
    think=0      pieces of reasoning, before everything else
    stamp=0      1: each piece of text starts with the time.monotonic_ns() at which it was emitted
    mode=sync    async: runs as a Trio task instead of in a thread
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import trio
from attrs import frozen

from hermes_trio.agent.emitter import AsyncEmitter, Emitter
from hermes_trio.agent.interface import AgentContext, TurnRequest, nonblocking
from hermes_trio.agent.inventory import Inventory, Toolset, with_inventory
from hermes_trio.core.events import Result, Verdict
from hermes_trio.core.messages import Usage

MAX_COUNT = 10_000_000
MIN_RATE = 0.001
TOOL_NAME = "synthetic_tool"


@frozen
class Load:
    """The load of one turn."""

    tokens: int = 100
    rate: float = 0.0
    tools: int = 0
    size: int = 20
    think: int = 0
    stamp: bool = False
    mode: str = "sync"

    def token(self, number: int) -> str:
        """Return a piece of text that contains its number, counted from 1."""
        if self.stamp:
            return _pad(f"{time.monotonic_ns()} t{number:06d}", max(self.size, 28))
        return _pad(f"t{number:06d}", self.size)

    def reasoning(self, number: int) -> str:
        """Return a piece of reasoning."""
        return _pad(f"r{number:06d}", self.size)

    def tool_result(self, number: int) -> str:
        """Return the result of a tool call."""
        return _pad(f"c{number:06d}", self.size)

    def tool_args(self, number: int) -> Mapping[str, Any]:
        """Return the arguments of a tool call."""
        return {"query": f"{number} of {self.tools}"}

    def due(self, start: float, number: int) -> float:
        """Return when a token is due.

        It does not depend on the other tokens, so that delays do not add up.
        """
        return start + (number - 1) / self.rate if self.rate else start

    def segments(self) -> Iterator[range]:
        """Yield the token numbers in segments, with a tool call between each two."""
        cuts = [self.tokens * part // (self.tools + 1) for part in range(self.tools + 2)]
        return (range(first + 1, last + 1) for first, last in pairwise(cuts))


def parse_load(text: str) -> Load:
    """Parse a message.

    Raises:
        ValueError: it does not describe a load.
    """
    values: dict[str, Any] = {}
    for word in text.split(maxsplit=len(_PARAMETERS)):
        name, _, value = word.partition("=")
        if name not in _PARAMETERS or name in values:
            raise ValueError(
                f"{word[:100]!r} is not one of {', '.join(_PARAMETERS)}, given once as name=value"
            )
        values[name] = _PARAMETERS[name](name, value)
    return Load(**values)


class SyntheticAgent:
    """Generates the load from a thread."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._interrupted = threading.Event()

    def interrupt(self, reason: str) -> None:  # noqa: ARG002 - the interface's signature
        """Stop before the next piece. Thread-safe."""
        self._interrupted.set()

    def run(self, turn: TurnRequest, emitter: Emitter) -> Result:
        """Run the turn."""
        counts = _EmittedCounts()
        try:
            self._emit_reasoning(emitter, counts)
            self._emit_text(emitter, counts)
        except _SyntheticInterrupted:
            return counts.result(turn, Verdict.INTERRUPTED)
        return counts.result(turn)

    def _emit_reasoning(self, emitter: Emitter, counts: _EmittedCounts) -> None:
        for number in range(1, self._load.think + 1):
            self._wait_until(0)
            emitter.reasoning(self._load.reasoning(number))
            counts.reasoning = number

    def _emit_text(self, emitter: Emitter, counts: _EmittedCounts) -> None:
        load, start = self._load, time.monotonic()
        for call, numbers in enumerate(load.segments()):
            if call:
                self._call(emitter, call)
            for number in numbers:
                self._wait_until(load.due(start, number))
                emitter.text(load.token(number))
                counts.tokens = number

    def _call(self, emitter: Emitter, number: int) -> None:
        self._wait_until(0)
        with emitter.tool(TOOL_NAME, self._load.tool_args(number)) as call:
            call.result = self._load.tool_result(number)

    def _wait_until(self, due: float) -> None:
        left = due - time.monotonic() if due else 0
        if self._interrupted.wait(left) if left > 0 else self._interrupted.is_set():
            raise _SyntheticInterrupted


class AsyncSyntheticAgent:
    """Generates the load from a Trio task; an interrupt is a cancellation."""

    def __init__(self, load: Load) -> None:
        self._load = load

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> Result:
        """Run the turn."""
        load = self._load
        for number in range(1, load.think + 1):
            await emitter.reasoning(load.reasoning(number))
        start = trio.current_time()
        for call, numbers in enumerate(load.segments()):
            if call:
                await self._call(emitter, call)
            for number in numbers:
                due = load.due(start, number)
                # As in a thread: a late token is emitted at once.
                if due > start and due > trio.current_time():
                    await trio.sleep_until(due)
                await emitter.text(load.token(number))
        return _EmittedCounts(load.tokens, load.think).result(turn)

    async def _call(self, emitter: AsyncEmitter, number: int) -> None:
        async with emitter.tool(TOOL_NAME, self._load.tool_args(number)) as call:
            call.result = self._load.tool_result(number)


@nonblocking
@with_inventory(lambda: Inventory((Toolset("synthetic", (TOOL_NAME,)),)))
def factory(context: AgentContext) -> SyntheticAgent | AsyncSyntheticAgent:
    """Create an agent for the load in the turn's message.

    Raises:
        ValueError: the message does not describe a load.
    """
    load = parse_load(context.turn.text)
    return AsyncSyntheticAgent(load) if load.mode == "async" else SyntheticAgent(load)


class _SyntheticInterrupted(Exception):
    """Unwinds an interrupted turn."""


class _EmittedCounts:
    """How much has been emitted so far."""

    def __init__(self, tokens: int = 0, reasoning: int = 0) -> None:
        self.tokens, self.reasoning = tokens, reasoning

    def result(self, turn: TurnRequest, verdict: Verdict = Verdict.COMPLETED) -> Result:
        usage = Usage(len(turn.text.split()), self.tokens, reasoning_tokens=self.reasoning)
        return Result(verdict=verdict, usage=usage)


def _pad(label: str, size: int) -> str:
    """Pad the label to the size, ending in a space. If it does not fit, keep its last digits."""
    return label[-size:] if size <= len(label) else f"{label:.<{size - 1}} "


def _count(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 8 and int(value) <= MAX_COUNT):
        raise ValueError(f"{name}={value}: not a whole number between 0 and {MAX_COUNT}")
    return int(value)


def _size(name: str, value: str) -> int:
    if not (size := _count(name, value)):
        raise ValueError(f"{name}={value}: must be 1 or more")
    return size


def _rate(name: str, value: str) -> float:
    try:
        rate = float(value)
    except ValueError:
        rate = -1.0
    if rate != 0 and not MIN_RATE <= rate <= MAX_COUNT:
        raise ValueError(
            f"{name}={value}: neither 0 nor a number between {MIN_RATE} and {MAX_COUNT}"
        )
    return rate


def _flag(name: str, value: str) -> bool:
    if value not in ("0", "1"):
        raise ValueError(f"{name}={value}: must be 0 or 1")
    return value == "1"


def _mode(name: str, value: str) -> str:
    if value not in ("sync", "async"):
        raise ValueError(f"{name}={value}: must be sync or async")
    return value


_PARAMETERS: Mapping[str, Callable[[str, str], Any]] = {
    "tokens": _count,
    "rate": _rate,
    "tools": _count,
    "size": _size,
    "think": _count,
    "stamp": _flag,
    "mode": _mode,
}
