"""The agent with the real package: alone, behind the agent runner, and behind the whole server."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from attrs import define, field

from hermes_trio.agent.interface import AgentConfig, AgentContext, AgentFactory, TurnRequest
from hermes_trio.agents.hermes.provider import provider
from hermes_trio.core.events import Event, Result
from tests.hermes.scripted_model import Upstream
from tests.support.agent_harness import EventRecorder, turn
from tests.support.fakes import AppHarness, ScriptedAgentFactory, open_harness

NOWHERE = Path("/nonexistent")


@asynccontextmanager
async def hermes(server: Upstream, **options: Any) -> AsyncIterator[AgentFactory]:
    """The agent, talking to the scripted model."""
    config = AgentConfig(
        model="scripted",
        base_url=server.url,
        options={"warm_up": False, "skip_memory": True, "skip_context_files": True, **options},
    )
    async with provider.open(config, NOWHERE) as factory:
        yield factory


async def one_turn(server: Upstream) -> None:
    """Import everything."""
    async with hermes(server) as factory:
        await run_turn(factory, turn("Hi"), EventRecorder())


async def run_turn(factory: AgentFactory, request: TurnRequest, recorder: EventRecorder) -> Result:
    """Run one turn in a thread, without a server."""
    agent: Any = factory(AgentContext(request, NOWHERE))
    result = await trio.to_thread.run_sync(agent.run, request, recorder.emitter())
    assert isinstance(result, Result)
    return result


@define(eq=False)
class ServedAgent(ScriptedAgentFactory):
    """Puts the real agent into a harness for scripted ones."""

    made: AgentFactory = field(kw_only=True)

    def factory(self, context: AgentContext) -> Any:
        self.turns.append(context.turn)
        return self.made(context)


@asynccontextmanager
async def serving(server: Upstream, **options: Any) -> AsyncIterator[AppHarness]:
    """Open the whole server except for its sockets."""
    async with (
        hermes(server, **options) as factory,
        open_harness(ServedAgent((), made=factory)) as harness,
    ):
        yield harness


class Stopwatch:
    """Measures the time from an interrupt to the end of the turn."""

    def __init__(self) -> None:
        self._began = 0.0

    def start(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began


def interrupt_on(kind: type[Event], then: Callable[[], None]) -> Callable[[Event], object]:
    """Return an event callback that does something in another thread on the first event of a kind."""

    def on_event(event: Event) -> None:
        if isinstance(event, kind):
            threading.Thread(target=then, daemon=True).start()

    return on_event
