"""The OpenAI Agents SDK for Python."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

from agents import (
    Agent,
    HostedMCPTool,
    OpenAIProvider,
    RunConfig,
    Runner,
    function_tool,
    set_tracing_disabled,
)

from tests.clients.drivers.protocol import MODEL, multiply, serve

# The server as a hosted MCP server: the address is not used.
HOSTED: Any = {
    "type": "mcp",
    "server_label": "hermes",
    "server_url": "http://127.0.0.1",
    "require_approval": "always",
}


class AgentsDriver:
    """An agent of the framework whose model is the server."""

    def __init__(self, uses_responses: bool) -> None:
        self._config = RunConfig(model_provider=OpenAIProvider(use_responses=uses_responses))

    async def answer(self, text: str) -> str:
        return str((await Runner.run(_agent(), text, run_config=self._config)).final_output)

    async def stream(self, text: str) -> AsyncIterator[str]:
        run = Runner.run_streamed(_agent(), text, run_config=self._config)
        try:
            async for event in run.stream_events():
                data: Any = getattr(event, "data", None)
                if getattr(data, "type", "") == "response.output_text.delta":
                    yield data.delta
        finally:
            run.cancel()

    async def converse(self, first: str, second: str) -> list[str]:
        opening = await Runner.run(_agent(), first, run_config=self._config)
        history = [*opening.to_input_list(), {"role": "user", "content": second}]
        closing = await Runner.run(_agent(), history, run_config=self._config)
        return [opening.final_output, closing.final_output]

    async def use_tool(self, text: str) -> str:
        agent = _agent(function_tool(multiply))
        return str((await Runner.run(agent, text, run_config=self._config)).final_output)

    async def decide(self, first: str, second: str, *, approves: bool) -> list[str]:
        """Decide in the callback if the call is approved; else interrupt the run, as programs with people do."""
        asked: list[str] = []

        def approve(request: Any) -> Any:
            asked.append(f"{request.data.name} {request.data.arguments}")
            return {"approve": True}

        agent = _agent(HostedMCPTool(HOSTED, approve if approves else None))
        result = await Runner.run(agent, first, run_config=self._config)
        if not approves:
            [interruption] = result.interruptions
            asked.append(str(interruption.raw_item))
            state = result.to_state()
            state.reject(interruption)
            result = await Runner.run(agent, state, run_config=self._config)
        history = [*result.to_input_list(), {"role": "user", "content": second}]
        later = await Runner.run(agent, history, run_config=self._config)
        return [*asked, result.final_output, later.final_output]


def _agent(*tools: Any) -> Any:
    return Agent(name="client", model=MODEL, tools=list(tools))


if __name__ == "__main__":
    set_tracing_disabled(True)
    serve(AgentsDriver("responses" in sys.argv))
