"""The tool loop: call the model, execute the tools that it calls, send back the results, until it calls no more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from attrs import evolve, frozen

from hermes_trio.agent.emitter import AsyncEmitter
from hermes_trio.agent.interface import AgentConfig, TurnRequest
from hermes_trio.agents.upstream.client import CallTruncated, ModelClient
from hermes_trio.agents.upstream.completion import Completion, Delta, add_usage
from hermes_trio.agents.upstream.errors import CallFailed
from hermes_trio.agents.upstream.tool_calls import ToolExecutor
from hermes_trio.agents.upstream.wire import (
    assistant_message,
    fixed_fields,
    initial_messages,
    offer_tools,
    tool_message,
)
from hermes_trio.core.events import Result, Text, Verdict, coalesce
from hermes_trio.core.messages import NO_USAGE, ToolCall
from hermes_trio.tools.base import Tool

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

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> Result:
        """Run the turn."""
        return await _ToolLoop(self, turn, emitter).run()


class _ToolLoop:
    """One turn."""

    def __init__(self, agent: UpstreamAgent, turn: TurnRequest, emitter: AsyncEmitter) -> None:
        self._agent, self._turn, self._emitter = agent, turn, emitter
        self._executor = ToolExecutor(agent.tools, agent.workspace, turn, emitter, agent.model.mask)
        self._offered = offer_tools(agent.tools.values(), turn.options)
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
