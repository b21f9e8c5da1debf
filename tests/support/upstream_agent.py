"""The upstream agent with a scripted model server and a recording emitter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import attrs
import trio
from attrs import define, field, frozen

from hermes_trio.agent.emitter import AsyncEmitter
from hermes_trio.agent.interface import AgentConfig, TurnRequest, UpstreamLimits
from hermes_trio.agents.upstream.loop import UpstreamAgent
from hermes_trio.agents.upstream.provider import open_model
from hermes_trio.core.events import (
    Event,
    Reasoning,
    Result,
    Text,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
)
from hermes_trio.tools.base import Tool
from tests.support.scripted_upstream import Script, ScriptedUpstream, serve_scripts

KEY = "canary-7f3a9c51d2e84b06"
NOWHERE = Path("/nonexistent")


@frozen
class ClientCall:
    """A call that the client has to run."""

    call_id: str
    name: str
    arguments: str


@frozen
class Question:
    """An approval request."""

    command: str
    description: str
    patterns: tuple[str, ...]
    call_id: str
    allow_permanent: bool = True


@frozen
class Approval:
    """The user's answer to all approval requests."""

    approved: bool


@define(eq=False)
class RecordingEmitter:
    """An emitter that records every event."""

    is_approving: bool = True
    events: list[Event | ClientCall | Question] = field(factory=list)
    changed: trio.Event = field(factory=trio.Event)

    async def text(self, text: str | None) -> None:
        await self._hear(Text(text or ""))

    async def reasoning(self, text: str | None) -> None:
        await self._hear(Reasoning(text or ""))

    async def tool_started(
        self, call_id: str, name: str, args: Mapping[str, Any] | None = None
    ) -> None:
        await self._hear(ToolStarted(call_id, name, args or {}))

    async def tool_output(self, call_id: str, text: str) -> None:
        await self._hear(ToolOutput(call_id, text))

    async def tool_completed(
        self, call_id: str, result: object = "", is_error: bool = False
    ) -> None:
        await self._hear(ToolCompleted(call_id, str(result), is_error))

    def tool_context(self, call_id: str) -> AbstractContextManager[object]:
        return nullcontext()

    async def client_call(self, call_id: str, name: str, arguments: str) -> None:
        await self._hear(ClientCall(call_id, name, arguments))

    async def ask(
        self,
        command: str,
        description: str,
        patterns: tuple[str, ...],
        call_id: str,
        allow_permanent: bool,
    ) -> Approval:
        await self._hear(Question(command, description, patterns, call_id, allow_permanent))
        return Approval(self.is_approving)

    async def until(self, kind: type) -> None:
        """Wait until a matching event was emitted."""
        while not self.all(kind):
            await self.changed.wait()

    def all(self, kind: type) -> list[Any]:
        return [said for said in self.events if isinstance(said, kind)]

    @property
    def said(self) -> str:
        return "".join(event.text for event in self.all(Text))

    @property
    def thought(self) -> str:
        return "".join(event.text for event in self.all(Reasoning))

    @property
    def ends(self) -> list[tuple[str, str, bool]]:
        """Return id, result and failure of each call, in the order in which they ended."""
        return [(event.call_id, event.result, event.is_error) for event in self.all(ToolCompleted)]

    async def _hear(self, event: Event | ClientCall | Question) -> None:
        await trio.lowlevel.checkpoint()
        self.events.append(event)
        self.changed.set()
        self.changed = trio.Event()


@frozen
class UpstreamHarness:
    """A scripted model server and an agent that uses it."""

    upstream: ScriptedUpstream
    agent: UpstreamAgent
    emitter: RecordingEmitter = field(factory=RecordingEmitter)

    async def turn(self, text: Any = "Hi", **more: Any) -> Result:
        """Run a turn."""
        turn = TurnRequest("run_0123456789ab", "session_1", text, **more)
        return await self.agent.run(turn, cast("AsyncEmitter", self.emitter))

    @property
    def sent(self) -> list[Any]:
        """The bodies of all requests."""
        return [asked.json for asked in self.upstream.requests]

    @property
    def messages(self) -> list[Any]:
        """The messages of the last request."""
        return list(self.sent[-1]["messages"])


@asynccontextmanager
async def open_upstream_harness(
    *scripts: Script, tools: Iterable[Tool] = (), **config: Any
) -> AsyncIterator[UpstreamHarness]:
    """Open an agent for these scripts.

    Every other argument is a field of the configuration or of its limits.
    """
    names = {attribute.name for attribute in attrs.fields(UpstreamLimits)}
    limits = UpstreamLimits(**{name: config.pop(name) for name in names & set(config)})
    async with serve_scripts(*scripts) as upstream:
        filled = AgentConfig(
            base_url=upstream.base_url, **{"model": "m", "api_key": KEY, **config}, limits=limits
        )
        async with open_model(filled) as model:
            shown = {tool.name: tool for tool in tools}
            yield UpstreamHarness(upstream, UpstreamAgent(filled, model, shown, NOWHERE))
