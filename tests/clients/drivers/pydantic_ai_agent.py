"""Pydantic AI."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

from tests.clients.drivers.protocol import MODEL, multiply, serve


class PydanticDriver:
    """An agent of the framework whose model is the server."""

    def __init__(self, uses_responses: bool) -> None:
        self._model = OpenAIResponsesModel if uses_responses else OpenAIChatModel

    async def answer(self, text: str) -> str:
        return str((await self._agent().run(text)).output)

    async def stream(self, text: str) -> AsyncIterator[str]:
        async with self._agent().run_stream(text) as run:
            async for piece in run.stream_text(delta=True, debounce_by=None):
                yield piece

    async def converse(self, first: str, second: str) -> list[str]:
        agent = self._agent()
        opening = await agent.run(first)
        closing = await agent.run(second, message_history=opening.all_messages())
        return [opening.output, closing.output]

    async def use_tool(self, text: str) -> str:
        return str((await self._agent(multiply).run(text)).output)

    def _agent(self, *tools: Any) -> Any:
        return Agent(self._model(MODEL), tools=tools)


if __name__ == "__main__":
    serve(PydanticDriver("responses" in sys.argv))
