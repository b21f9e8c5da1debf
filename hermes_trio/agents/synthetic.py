"""An agent for benchmarks and tests: makes exactly the load that its message asks for.

The message is a list of ``name=value`` words in any order, all optional::

    tokens=100   pieces of text
    rate=0       pieces of text per second; 0 is as fast as possible
    tools=0      tool calls, spread evenly between the pieces of text
    size=20      characters of each piece and of each tool result
    think=0      pieces of reasoning, before everything else
    stamp=0      1: each piece of text begins with the time.monotonic_ns() at which it was said
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
from hermes_trio.core.events import Result, Verdict
from hermes_trio.core.messages import Usage

MOST = 10_000_000
SLOWEST = 0.001
TOOL = "synthetic_tool"


@frozen
class Load:
    """What to do in one turn."""

    tokens: int = 100
    rate: float = 0.0
    tools: int = 0
    size: int = 20
    think: int = 0
    stamp: bool = False
    mode: str = "sync"

    def token(self, number: int) -> str:
        """A piece of text in which its number can be seen; the first is 1."""
        if self.stamp:
            return _sized(f"{time.monotonic_ns()} t{number:06d}", max(self.size, 28))
        return _sized(f"t{number:06d}", self.size)

    def thought(self, number: int) -> str:
        """A piece of reasoning."""
        return _sized(f"r{number:06d}", self.size)

    def tool_result(self, number: int) -> str:
        """What a tool call returns."""
        return _sized(f"c{number:06d}", self.size)

    def tool_args(self, number: int) -> Mapping[str, Any]:
        """What a tool call is given."""
        return {"query": f"{number} of {self.tools}"}

    def due(self, start: float, number: int) -> float:
        """When a token is to be said. It does not depend on when the others were, so lateness cannot add up."""
        return start + (number - 1) / self.rate if self.rate else start

    def stretches(self) -> Iterator[range]:
        """The numbers of the tokens, in as many parts as the tool calls cut them into."""
        cuts = [self.tokens * part // (self.tools + 1) for part in range(self.tools + 2)]
        return (range(first + 1, last + 1) for first, last in pairwise(cuts))


def parse_load(text: str) -> Load:
    """Read a message.

    Raises:
        ValueError: it is not a load.
    """
    wanted: dict[str, Any] = {}
    for word in text.split():
        name, _, value = word.partition("=")
        if name not in _PARAMETERS or name in wanted:
            raise ValueError(f"{word!r} is not one of {', '.join(_PARAMETERS)}, given once as name=value")
        wanted[name] = _PARAMETERS[name](name, value)
    return Load(**wanted)


class SyntheticAgent:
    """Makes the load from a thread."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._interrupted = threading.Event()

    def interrupt(self, reason: str) -> None:  # noqa: ARG002 - the contract's signature
        """Stop before the next piece. For any thread."""
        self._interrupted.set()

    def run(self, turn: TurnRequest, emitter: Emitter) -> Result:
        """Do the turn."""
        tally = _Tally()
        try:
            self._think(emitter, tally)
            self._speak(emitter, tally)
        except _Interrupted:
            return tally.result(turn, Verdict.INTERRUPTED)
        return tally.result(turn)

    def _think(self, emitter: Emitter, tally: _Tally) -> None:
        for number in range(1, self._load.think + 1):
            self._wait_until(0)
            emitter.reasoning(self._load.thought(number))
            tally.thoughts = number

    def _speak(self, emitter: Emitter, tally: _Tally) -> None:
        load, start = self._load, time.monotonic()
        for call, numbers in enumerate(load.stretches()):
            if call:
                self._call(emitter, call)
            for number in numbers:
                self._wait_until(load.due(start, number))
                emitter.text(load.token(number))
                tally.tokens = number

    def _call(self, emitter: Emitter, number: int) -> None:
        self._wait_until(0)
        with emitter.tool(TOOL, self._load.tool_args(number)) as call:
            call.result = self._load.tool_result(number)

    def _wait_until(self, due: float) -> None:
        left = due - time.monotonic() if due else 0
        if self._interrupted.wait(left) if left > 0 else self._interrupted.is_set():
            raise _Interrupted


class AsyncSyntheticAgent:
    """Makes the load from a Trio task; an interrupt is a cancellation."""

    def __init__(self, load: Load) -> None:
        self._load = load

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> Result:
        """Do the turn."""
        load = self._load
        for number in range(1, load.think + 1):
            await emitter.reasoning(load.thought(number))
        start = trio.current_time()
        for call, numbers in enumerate(load.stretches()):
            if call:
                await self._call(emitter, call)
            for number in numbers:
                due = load.due(start, number)
                # As in a thread: what is late is said at once.
                if due > start and due > trio.current_time():
                    await trio.sleep_until(due)
                await emitter.text(load.token(number))
        return _Tally(load.tokens, load.think).result(turn)

    async def _call(self, emitter: AsyncEmitter, number: int) -> None:
        async with emitter.tool(TOOL, self._load.tool_args(number)) as call:
            call.result = self._load.tool_result(number)


@nonblocking
def factory(context: AgentContext) -> SyntheticAgent | AsyncSyntheticAgent:
    """An agent for the load that the turn asks for.

    Raises:
        ValueError: it asks for none.
    """
    load = parse_load(context.turn.text)
    return AsyncSyntheticAgent(load) if load.mode == "async" else SyntheticAgent(load)


class _Interrupted(Exception):
    """Unwinds a turn that was interrupted."""


class _Tally:
    """What was said so far."""

    def __init__(self, tokens: int = 0, thoughts: int = 0) -> None:
        self.tokens, self.thoughts = tokens, thoughts

    def result(self, turn: TurnRequest, verdict: Verdict = Verdict.COMPLETED) -> Result:
        usage = Usage(len(turn.text.split()), self.tokens, reasoning_tokens=self.thoughts)
        return Result(verdict=verdict, usage=usage)


def _sized(label: str, size: int) -> str:
    """The label filled up, with a space at the end. Where it does not fit, its last digits have to do."""
    return label[-size:] if size <= len(label) else f"{label:.<{size - 1}} "


def _count(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 8 and int(value) <= MOST):
        raise ValueError(f"{name}={value}: not a whole number between 0 and {MOST}")
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
    if rate != 0 and not SLOWEST <= rate <= MOST:
        raise ValueError(f"{name}={value}: neither 0 nor a number between {SLOWEST} and {MOST}")
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
