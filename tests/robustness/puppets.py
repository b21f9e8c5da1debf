"""Agents that do one thing at a time, when a test says so; and a store whose line can be cut, as by a death."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import trio
from attrs import define, field

from hermes_trio.agent.emitter import AsyncEmitter
from hermes_trio.agent.interface import AgentContext, TurnRequest
from hermes_trio.core.records import EndedRun
from hermes_trio.runs.recovery import recover
from hermes_trio.stores.base import Store, StoreError
from hermes_trio.stores.memory import MemoryStore
from hermes_trio.web.api.responses import to_items
from tests.robustness.scenes import LIMITS
from tests.support.fakes import AppHarness, ScriptedAgentFactory, make_harness

OWNER, SUCCESSOR = "server", "successor"


@define(eq=False)
class Strings(ScriptedAgentFactory):
    """Makes puppets, and finds them by the id of their run."""

    puppets: dict[str, Puppet] = field(factory=dict)

    def factory(self, context: AgentContext) -> Any:
        """Make a puppet."""
        puppet = self.puppets[context.turn.run_id] = Puppet()
        return puppet


@define(eq=False)
class Puppet:
    """An agent that waits for orders."""

    orders: Any = field(factory=lambda: trio.open_memory_channel[tuple[str, Any]](10))
    decisions: list[str] = field(factory=list)

    def order(self, what: str, value: Any = None) -> None:
        """Say what it is to do next."""
        self.orders[0].send_nowait((what, value))

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> str | None:
        """Do as it is told."""
        async for what, value in self.orders[1]:
            match what:
                case "text":
                    await emitter.text(value)
                case "start":
                    await emitter.tool_started(value, "terminal", {})
                case "complete":
                    await emitter.tool_completed(value, "done")
                case "ask":
                    self.decisions.append(str((await emitter.ask("rm")).choice))
                case "fail":
                    raise RuntimeError("as ordered")
                case _:
                    return None
        return None


class Line:
    """The way to a store. When it is cut, nothing passes any more: so a process that is killed leaves its store."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.is_cut = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call(*args: Any, **more: Any) -> Any:
            if self.is_cut:
                await trio.lowlevel.checkpoint()
                raise StoreError("the process is dead")
            return await method(*args, **more)

        return call


@define(eq=False)
class Life:
    """One process: a harness on a line to a store."""

    harness: AppHarness
    line: Line

    @property
    def strings(self) -> Strings:
        """Its agents."""
        return cast("Strings", self.harness.agents)


@asynccontextmanager
async def open_life(store: MemoryStore) -> AsyncIterator[Life]:
    """Start a server on a store that may have seen others die."""
    line = Line(store)
    await recover(store, SUCCESSOR, _items, lambda: 0.0)
    async with trio.open_nursery() as nursery:
        harness = make_harness(
            Strings(()), nursery=nursery, store=cast("Store", line), limits=LIMITS, max_runs=100
        )
        nursery.start_soon(harness.state.services.flusher.run)
        yield Life(harness, line)
        line.is_cut = True
        nursery.cancel_scope.cancel()


def _items(ended: EndedRun) -> Any:
    return to_items(ended)
