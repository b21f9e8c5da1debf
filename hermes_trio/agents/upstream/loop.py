"""The tool loop: ask the model, run what it calls, tell it what came of that, until it has nothing more to call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from attrs import evolve, frozen

from hermes_trio.agent.emitter import AsyncEmitter
from hermes_trio.agent.interface import AgentConfig, TurnRequest
from hermes_trio.agents.upstream.answer import Answer, Delta, add_usage
from hermes_trio.agents.upstream.calling import Workshop
from hermes_trio.agents.upstream.client import CallBroken, ModelClient
from hermes_trio.agents.upstream.problems import CallFailed
from hermes_trio.agents.upstream.wire import assistant_message, fixed_fields, offer, opening, tool_message
from hermes_trio.core.events import Result, Text, Verdict, coalesce
from hermes_trio.core.messages import NO_USAGE, ToolCall
from hermes_trio.tools.base import Tool

# Finish reasons that are not simply the end.
_CUT: Mapping[str, tuple[Verdict, str]] = {
    "length": (Verdict.TRUNCATED, "The model reached its limit of output tokens."),
    "content_filter": (Verdict.INCOMPLETE, "The model's server withheld the rest of the answer."),
}


@frozen
class UpstreamAgent:
    """A model behind an OpenAI-compatible endpoint, with tools. Runs as a Trio task."""

    config: AgentConfig
    model: ModelClient
    tools: Mapping[str, Tool]
    workspace: Path

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> Result:
        """Do the turn."""
        return await _Loop(self, turn, emitter).run()


class _Loop:
    """One turn."""

    def __init__(self, agent: UpstreamAgent, turn: TurnRequest, emitter: AsyncEmitter) -> None:
        self._agent, self._say = agent, emitter
        self._workshop = Workshop(agent.tools, agent.workspace, turn, emitter, agent.model.scrub)
        self._offer = offer(agent.tools.values(), turn.options)
        self._turn = turn
        self._fixed: Mapping[str, Any] = {}
        self._messages = opening(agent.config, turn)
        self._ids = _Ids(turn)
        self._usage = NO_USAGE

    async def run(self) -> Result:
        """To the end, whatever it is."""
        try:
            return await self._rounds()
        except CallBroken as broken:
            self._usage = add_usage(self._usage, broken.answer.usage)
            return self._result(Verdict.INCOMPLETE, str(broken))
        except CallFailed as failed:
            return self._result(Verdict.FAILED, str(failed))

    async def _rounds(self) -> Result:
        agent = self._agent
        model = agent.config.model or await agent.model.names.choose(self._turn.model)
        self._fixed = fixed_fields(agent.config, self._turn, model)
        for number in range(agent.config.max_iterations):
            answer = await self._ask(number)
            if not answer.calls:
                return self._ended(answer)
            if await self._do(answer):
                return self._result(Verdict.COMPLETED)
        return await self._give_up()

    async def _ask(self, number: int, is_last: bool = False) -> Answer:
        tools = self._offer.fields(number, is_last)
        body = {**self._fixed, "messages": self._messages, **tools}
        answer = await self._agent.model.call(body, self._hear)
        self._usage = add_usage(self._usage, answer.usage)
        # The last call of an answer that was cut has lost its end: none of them is meant as it stands.
        calls = () if answer.finish in _CUT else self._ids.given(answer.calls)
        return evolve(answer, calls=calls)

    async def _hear(self, deltas: list[Delta]) -> None:
        for said in coalesce(deltas):
            if isinstance(said, Text):
                await self._say.text(said.text)
            else:
                await self._say.reasoning(cast("Delta", said).text)

    async def _do(self, answer: Answer) -> bool:
        """Run the calls that are ours and hand over the client's; returns whether there were any of those."""
        theirs = [call for call in answer.calls if call.name in self._offer.client_names]
        ours = [call for call in answer.calls if call not in theirs]
        results = await self._workshop.run(ours)
        self._messages.append(assistant_message(answer, answer.calls, self._agent.config))
        self._messages += [tool_message(c.call_id, text) for c, text in zip(ours, results, strict=True)]
        for call in theirs:
            await self._say.client_call(call.call_id, call.name, call.arguments or "{}")
        return bool(theirs)

    async def _give_up(self) -> Result:
        """Let the model say what it has, without tools."""
        limit = self._agent.config.max_iterations
        await self._ask(limit, is_last=True)
        return self._result(Verdict.INCOMPLETE, f"The turn reached its limit of {limit} model calls.")

    def _ended(self, answer: Answer) -> Result:
        return self._result(*_CUT.get(answer.finish, (Verdict.COMPLETED, "")))

    def _result(self, verdict: Verdict, error: str = "") -> Result:
        return Result(verdict=verdict, error=error, usage=self._usage)  # its text was streamed


class _Ids:
    """Gives every call an id that no other call of the conversation has. Servers leave ids out, or use one twice."""

    def __init__(self, turn: TurnRequest) -> None:
        self._run = turn.run_id[-12:]
        self._used = {call.call_id for message in turn.history for call in message.tool_calls}
        self._count = 0

    def given(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        return tuple(evolve(call, call_id=self._fresh(call.call_id)) for call in calls)

    def _fresh(self, wanted: str) -> str:
        self._count += 1
        chosen = wanted if wanted and wanted not in self._used else f"call_{self._run}_{self._count}"
        self._used.add(chosen)
        return chosen
