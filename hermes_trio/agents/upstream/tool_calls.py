"""Execute the tools that a model calls.

Whatever a tool does, the model gets a result and the turn continues.
"""

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
from hermes_trio.agents.upstream.errors import SecretMasker
from hermes_trio.core.messages import ToolCall
from hermes_trio.core.shorten import shorten
from hermes_trio.tools.base import Tool, ToolError, ToolUse

log = structlog.get_logger(__name__)

MAX_QUOTED_CHARS = 500  # of an invalid call, in its error message


@frozen
class ToolExecutor:
    """The tools of one turn, and what they need to run."""

    tools: Mapping[str, Tool]
    workspace: Path
    turn: TurnRequest
    emitter: AsyncEmitter
    mask: SecretMasker

    async def run(self, calls: Sequence[ToolCall]) -> list[str]:
        """Run all calls concurrently, reporting start and end of each, and return the results in order."""
        results = [""] * len(calls)

        async def run_one(number: int, call: ToolCall) -> None:
            results[number], is_error = await self._execute(call)
            await self.emitter.tool_completed(call.call_id, results[number], is_error)

        async with trio.open_nursery() as nursery:
            for number, call in enumerate(calls):
                try:
                    shown = parse_arguments(call.arguments)
                except ToolError:
                    shown = {"arguments": call.arguments}
                await self.emitter.tool_started(call.call_id, call.name, shown)
                nursery.start_soon(run_one, number, call)
        return results

    async def _execute(self, call: ToolCall) -> tuple[str, bool]:
        """Return the result of a call, and whether it is an error."""
        try:
            tool = self.tools.get(call.name)
            if tool is None:
                known = ", ".join(self.tools) or "none"
                name = shorten(call.name, MAX_QUOTED_CHARS)
                raise ToolError(f"There is no tool {name!r}. Available tools: {known}.")
            return await tool.run(
                parse_arguments(call.arguments), self._tool_use(call.call_id)
            ), False
        except ToolError as error:
            return str(error), True
        except RunEnded:
            raise
        except Exception as error:  # noqa: BLE001 - a defect in a tool ends only its own call
            # Not log.exception: a traceback may quote a secret that only the masker knows.
            log.error("tool failed", tool=call.name, exception=self.mask(traceback.format_exc()))
            return f"The tool failed: {self.mask(f'{type(error).__name__}: {error}')}", True

    def _tool_use(self, call_id: str) -> ToolUse:
        async def output(text: str) -> None:
            await self.emitter.tool_output(call_id, text)

        async def ask(command: str, description: str, patterns: tuple[str, ...]) -> bool:
            return (await self.emitter.ask(command, description, patterns, call_id)).approved

        turn = self.turn
        return ToolUse(
            call_id, self.workspace, turn.session_id, turn.principal, output=output, ask=ask
        )


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse the arguments of a call.

    Models often send an empty string for a tool without parameters.

    Raises:
        ToolError: the text is not a JSON object.
    """
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        shown = shorten(text, MAX_QUOTED_CHARS)
        raise ToolError(f"The arguments are not valid JSON ({error}): {shown}") from None
    if not isinstance(found, dict):
        raise ToolError(
            f"The arguments must be a JSON object, not: {shorten(text, MAX_QUOTED_CHARS)}"
        )
    return found
