"""Agents that take one command at a time from a test, and a store that can be detached as by the death of a process."""

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
from hermes_trio.stores.sqlite import MemoryStore
from hermes_trio.web.api.responses import to_items
from tests.robustness.scenarios import LIMITS
from tests.support.fakes import AppHarness, ScriptedAgentFactory, make_harness

OWNER, SUCCESSOR = "server", "successor"


@define(eq=False)
class CommandedAgents(ScriptedAgentFactory):
    """Create commanded agents and find them by run id."""

    by_run: dict[str, CommandedAgent] = field(factory=dict)

    def factory(self, context: AgentContext) -> Any:
        """Create an agent."""
        agent = self.by_run[context.turn.run_id] = CommandedAgent()
        return agent


@define(eq=False)
class CommandedAgent:
    """An agent that waits for commands."""

    commands: Any = field(factory=lambda: trio.open_memory_channel[tuple[str, Any]](10))
    decisions: list[str] = field(factory=list)

    def command(self, what: str, value: Any = None) -> None:
        """Queue a command."""
        self.commands[0].send_nowait((what, value))

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> str | None:
        """Execute commands until one ends the turn."""
        async for what, value in self.commands[1]:
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


class DetachableStore:
    """A store that can be detached.

    Afterwards every call fails, as if the process had been killed.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.is_detached = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call(*args: Any, **more: Any) -> Any:
            if self.is_detached:
                await trio.lowlevel.checkpoint()
                raise StoreError("the process is dead")
            return await method(*args, **more)

        return call


@define(eq=False)
class ServerLifetime:
    """One server process: a harness on a detachable store."""

    harness: AppHarness
    store_link: DetachableStore

    @property
    def agents(self) -> CommandedAgents:
        """Its agents."""
        return cast("CommandedAgents", self.harness.agents)


@asynccontextmanager
async def open_server_lifetime(store: MemoryStore) -> AsyncIterator[ServerLifetime]:
    """Start a server on a store that may have seen others die."""
    store_link = DetachableStore(store)
    await recover(store, SUCCESSOR, _items, lambda: 0.0)
    async with trio.open_nursery() as nursery:
        harness = make_harness(
            CommandedAgents(()),
            nursery=nursery,
            store=cast("Store", store_link),
            limits=LIMITS,
            max_runs=100,
        )
        nursery.start_soon(harness.state.services.flusher.run)
        yield ServerLifetime(harness, store_link)
        store_link.is_detached = True
        nursery.cancel_scope.cancel()


def _items(ended: EndedRun) -> Any:
    return to_items(ended)
