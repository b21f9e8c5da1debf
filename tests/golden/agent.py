"""An agent that plays a script, one event at a time.

Between two events it waits until every other task is blocked. So each event has travelled all the way to the clients
before the next one is made, and no transcript depends on how a server batches what is said in a hurry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio
from attrs import define, field, frozen
from trio.testing import wait_all_tasks_blocked

from tests.golden.driver import Clock

Step = tuple[Any, ...]
STEP_SECONDS = 0.125


@frozen
class Script:
    """What an agent does in one turn.

    A step is the name of a method of ``say`` and its arguments, or one of these:

    * ``("hold", name)``: wait until the scenario releases it;
    * ``("burst", *steps)``: several steps without a pause, for sequences that no server may merge;
    * ``("tool", name, args, result)``: a ``say.tool`` block.
    """

    steps: tuple[Step, ...] = ()
    end: Callable[[], Any] = lambda: None  # returns what ``run`` returns, or raises


def say(*steps: Step, end: Any = None) -> Script:
    """A script that ends with a value, or by raising it."""

    def finish() -> Any:
        if isinstance(end, Exception):
            raise end
        return end

    return Script(steps, finish)


@define(eq=False)
class _Checkpoint:
    reached: trio.Event = field(factory=trio.Event)
    released: trio.Event = field(factory=trio.Event)


class Checkpoints:
    """Where scenario and agent meet."""

    def __init__(self) -> None:
        self._cues: dict[str, _Checkpoint] = {}
        self._left = trio.Event()
        self._running = 0

    def _cue(self, name: str) -> _Checkpoint:
        return self._cues.setdefault(name, _Checkpoint())

    @contextmanager
    def reaching(self, name: str) -> Iterator[None]:
        """The agent does something that waits by itself."""
        self._cue(name).reached.set()
        try:
            yield
        finally:
            self._cues.pop(name, None)

    async def hold(self, name: str) -> None:
        """The agent waits."""
        with self.reaching(name):
            await self._cue(name).released.wait()

    async def wait_reached(self, name: str) -> None:
        """Return when the agent waits, and everything before it has been delivered."""
        cue = self._cue(name)
        await cue.reached.wait()
        await wait_all_tasks_blocked()

    def release(self, name: str) -> None:
        """Let the agent go on."""
        self._cues.pop(name).released.set()

    @contextmanager
    def running(self) -> Iterator[None]:
        """An agent runs for as long as the block does."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._left.set()
            self._left = trio.Event()

    async def wait_idle(self) -> None:
        """Return when no agent runs and everything that followed has been done."""
        while self._running:
            await self._left.wait()
        await wait_all_tasks_blocked()


@define(eq=False)
class ScriptedAgent:
    """Plays a script."""

    script: Script
    clock: Clock
    cues: Checkpoints
    decisions: list[str]
    starts_held: bool = False

    async def run(self, turn: Any, say: Any) -> Any:
        """Do the turn."""
        with self.cues.running():
            if self.starts_held:
                await self.cues.hold("start")
            for step in self.script.steps:
                await self._pause()
                await self._play(step, say)
            await self._pause()
            return self.script.end()

    async def _pause(self) -> None:
        await wait_all_tasks_blocked()
        self.clock.advance(STEP_SECONDS)

    async def _play(self, step: Step, say: Any) -> None:
        match step:
            case ("hold", name):
                await self.cues.hold(name)
            case ("burst", *steps):
                for each in steps:
                    await self._play(each, say)
            case ("tool", name, args, outcome):
                await self._tool(name, args, outcome, say)
            case ("ask", *args):
                with self.cues.reaching("ask"):
                    decision = await say.ask(*args)
                self.decisions.append(f"{decision.choice} by {decision.by}")
            case (method, *args):
                await getattr(say, method)(*args)

    async def _tool(self, name: str, args: Any, outcome: Any, say: Any) -> None:
        async with say.tool(name, args) as call:
            await self._pause()
            if isinstance(outcome, Exception):
                raise outcome
            call.result = outcome
