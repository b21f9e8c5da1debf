"""Running the tools that a model called: whatever a tool does, the model gets a result and the turn goes on."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
import trio
from attrs import frozen

from hermes_trio.agent.emitter import AsyncEmitter
from hermes_trio.agent.event_queue import RunEnded
from hermes_trio.agent.interface import TurnRequest
from hermes_trio.agents.upstream.problems import Scrub
from hermes_trio.core.messages import ToolCall
from hermes_trio.core.shorten import shorten
from hermes_trio.tools.base import Tool, ToolError, ToolUse

log = structlog.get_logger(__name__)

MAX_SHOWN = 500  # characters of a wrong call in its error


@frozen
class Done:
    """What came of a call."""

    result: str
    is_error: bool = False


@frozen
class Workshop:
    """The tools of one turn, and all that they may use."""

    tools: Mapping[str, Tool]
    workspace: Path
    turn: TurnRequest
    emitter: AsyncEmitter
    scrub: Scrub

    async def run(self, calls: Sequence[ToolCall]) -> list[str]:
        """Run all calls at once, each shown from its start to its own end; returns the results in their order."""
        results = [""] * len(calls)

        async def run_one(number: int, call: ToolCall) -> None:
            done = await self._done(call)
            results[number] = done.result
            await self.emitter.tool_completed(call.call_id, done.result, done.is_error)

        async with trio.open_nursery() as nursery:
            for number, call in enumerate(calls):
                await self.emitter.tool_started(call.call_id, call.name, _shown(call.arguments))
                nursery.start_soon(run_one, number, call)
        return results

    async def _done(self, call: ToolCall) -> Done:
        try:
            return Done(await self._use(call))
        except ToolError as problem:
            return Done(str(problem), is_error=True)
        except RunEnded:
            raise
        except Exception as error:  # noqa: BLE001 - somebody else's code; it ends its own call only
            # Not log.exception: a traceback may quote a secret that only we know to be one.
            log.error("a tool failed", tool=call.name, exception=self.scrub(traceback.format_exc()))
            return Done(f"The tool failed: {self.scrub(f'{type(error).__name__}: {error}')}", is_error=True)

    async def _use(self, call: ToolCall) -> str:
        tool = self.tools.get(call.name)
        if tool is None:
            known = ", ".join(self.tools) or "none"
            raise ToolError(f"There is no tool {shorten(call.name, MAX_SHOWN)!r}. There are: {known}.")
        return await tool.run(read_arguments(call.arguments), self._use_of(call.call_id))

    def _use_of(self, call_id: str) -> ToolUse:
        async def output(text: str) -> None:
            await self.emitter.tool_output(call_id, text)

        async def ask(command: str, description: str, patterns: tuple[str, ...]) -> bool:
            return (await self.emitter.ask(command, description, patterns, call_id)).approved

        turn = self.turn
        return ToolUse(call_id, self.workspace, turn.session_id, turn.principal, output=output, ask=ask)


def read_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call. A tool that takes none is often called with an empty text.

    Raises:
        ToolError: this is no JSON object.
    """
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        shown = shorten(text, MAX_SHOWN)
        raise ToolError(f"The arguments are not valid JSON ({error}): {shown}") from None
    if not isinstance(found, dict):
        raise ToolError(f"The arguments must be a JSON object, not: {shorten(text, MAX_SHOWN)}")
    return found


def _shown(arguments: str) -> dict[str, Any]:
    try:
        return read_arguments(arguments)
    except ToolError:
        return {"arguments": arguments}
