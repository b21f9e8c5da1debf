"""The tool loop: call the model, execute the tools that it calls, send back the results, until it calls no more."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import structlog
import trio
from attrs import evolve, frozen

from hermes_trio.agent.emitter import AsyncEmitter
from hermes_trio.agent.event_queue import RunEnded
from hermes_trio.agent.interface import AgentConfig, TurnRequest
from hermes_trio.agents.upstream.client import CallTruncated, ModelClient
from hermes_trio.agents.upstream.completion import Completion, Delta, add_usage
from hermes_trio.agents.upstream.errors import CallFailed, SecretMasker
from hermes_trio.agents.upstream.wire import (
    NO_TOOLS,
    assistant_message,
    fixed_fields,
    initial_messages,
    offer_tools,
    tool_message,
)
from hermes_trio.core.events import Result, Text, Verdict, coalesce
from hermes_trio.core.messages import NO_USAGE, ToolCall
from hermes_trio.core.shorten import shorten
from hermes_trio.tools.base import Tool, ToolError, ToolUse
from hermes_trio.tools.sandbox import Sandbox

log = structlog.get_logger(__name__)

MAX_QUOTED_CHARS = 500  # of an invalid call, in its error message

# Finish reasons of incomplete answers.
_INCOMPLETE: Mapping[str, tuple[Verdict, str]] = {
    "length": (Verdict.TRUNCATED, "The model reached its limit of output tokens."),
    "content_filter": (Verdict.INCOMPLETE, "The model server withheld the rest of the answer."),
}


@frozen
class UpstreamAgent:
    """A model behind an OpenAI-compatible endpoint, with tools. Runs as a Trio task."""

    config: AgentConfig
    model: ModelClient
    tools: Mapping[str, Tool]
    workspace: Path
    sandbox: Sandbox | None = None

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> Result:
        """Run the turn."""
        return await _ToolLoop(self, turn, emitter).run()


class _ToolLoop:
    """One turn."""

    def __init__(self, agent: UpstreamAgent, turn: TurnRequest, emitter: AsyncEmitter) -> None:
        self._agent, self._turn, self._emitter = agent, turn, emitter
        tools = {name: tool for name, tool in agent.tools.items() if turn.permits_tool(name)}
        self._executor = ToolExecutor(
            tools, agent.workspace, turn, emitter, agent.model.mask, agent.sandbox
        )
        self._offered = offer_tools(tools.values(), turn.options) if turn.allows_tools else NO_TOOLS
        self._fixed: Mapping[str, Any] = {}
        self._messages = initial_messages(agent.config, turn)
        self._call_ids = _CallIds(turn)
        self._usage = NO_USAGE

    async def run(self) -> Result:
        """Run to the end, and turn a failed model call into the turn's result."""
        try:
            return await self._run_rounds()
        except CallTruncated as truncated:
            self._usage = add_usage(self._usage, truncated.completion.usage)
            return self._result(Verdict.INCOMPLETE, str(truncated))
        except CallFailed as failed:
            return self._result(Verdict.FAILED, str(failed))

    async def _run_rounds(self) -> Result:
        agent = self._agent
        model = agent.config.model or await agent.model.models.choose(self._turn.model)
        self._fixed = fixed_fields(agent.config, self._turn, model)
        limit = agent.config.max_iterations
        for number in range(limit):
            completion = await self._call_model(number)
            if not completion.calls:
                return self._result(*_INCOMPLETE.get(completion.finish, (Verdict.COMPLETED, "")))
            if await self._run_calls(completion):
                return self._result(Verdict.COMPLETED)
        # Let the model answer with what it has, without tools.
        await self._call_model(limit, is_last=True)
        return self._result(
            Verdict.INCOMPLETE, f"The turn reached its limit of {limit} model calls."
        )

    async def _call_model(self, number: int, is_last: bool = False) -> Completion:
        tools = self._offered.request_fields(number, is_last)
        body = {**self._fixed, "messages": self._messages, **tools}
        completion = await self._agent.model.call(body, self._emit)
        self._usage = add_usage(self._usage, completion.usage)
        # In an incomplete answer the last call lacks its end, so none of the calls can be trusted.
        is_complete = completion.finish not in _INCOMPLETE
        calls = tuple(map(self._call_ids.assign, completion.calls)) if is_complete else ()
        return evolve(completion, calls=calls)

    async def _emit(self, deltas: list[Delta]) -> None:
        for delta in coalesce(deltas):
            if isinstance(delta, Text):
                await self._emitter.text(delta.text)
            else:
                await self._emitter.reasoning(cast("Delta", delta).text)

    async def _run_calls(self, completion: Completion) -> bool:
        """Execute our calls and hand over the client's.

        Return True if any of them are for tools of the client.
        """
        theirs = [call for call in completion.calls if call.name in self._offered.client_names]
        ours = [call for call in completion.calls if call not in theirs]
        results = await self._executor.run(ours)
        self._messages.append(assistant_message(completion, completion.calls, self._agent.config))
        self._messages += [
            tool_message(c.call_id, text) for c, text in zip(ours, results, strict=True)
        ]
        for call in theirs:
            await self._emitter.client_call(call.call_id, call.name, call.arguments or "{}")
        return bool(theirs)

    def _result(self, verdict: Verdict, error: str = "") -> Result:
        return Result(verdict=verdict, error=error, usage=self._usage)  # the text has been streamed


class _CallIds:
    """Makes call ids unique within the conversation. Servers leave ids out, or repeat them."""

    def __init__(self, turn: TurnRequest) -> None:
        self._run = turn.run_id[-12:]
        self._used = {call.call_id for message in turn.history for call in message.tool_calls}
        self._count = 0

    def assign(self, call: ToolCall) -> ToolCall:
        """Return the call with its own id if that is unused, else with a new one."""
        self._count += 1
        is_free = call.call_id and call.call_id not in self._used
        call_id = call.call_id if is_free else f"call_{self._run}_{self._count}"
        self._used.add(call_id)
        return evolve(call, call_id=call_id)


@frozen
class ToolExecutor:
    """The tools of one turn, and what they need to run.

    Whatever a tool does, the model gets a result and the turn continues.
    """

    tools: Mapping[str, Tool]
    workspace: Path
    turn: TurnRequest
    emitter: AsyncEmitter
    mask: SecretMasker
    sandbox: Sandbox | None = None

    async def run(self, calls: Sequence[ToolCall]) -> list[str]:
        """Run all calls concurrently, reporting start and end of each, and return the results in order."""
        results = [""] * len(calls)

        async def run_one(number: int, call: ToolCall) -> None:
            with self.emitter.tool_context(call.call_id):
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

        async def ask(
            command: str, description: str, patterns: tuple[str, ...], allow_permanent: bool
        ) -> bool:
            decision = await self.emitter.ask(
                command, description, patterns, call_id, allow_permanent
            )
            return decision.approved

        turn = self.turn
        return ToolUse(
            call_id,
            self.workspace,
            turn.session_id,
            turn.principal,
            sandbox=self.sandbox,
            output=output,
            ask=ask,
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
