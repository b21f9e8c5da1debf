"""LlamaIndex: its three classes for OpenAI and its likes, and `FunctionAgent` around them."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai import OpenAI, OpenAIResponses
from llama_index.llms.openai_like import OpenAILike

from tests.clients.drivers.protocol import MODEL, multiply, serve

KNOWN_MODEL = "gpt-4o"  # these two classes refuse names that they do not know


class LlamaIndexDriver:
    """One class of models."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    async def answer(self, text: str) -> str:
        return str((await self._model().achat([_user(text)])).message.content)

    async def stream(self, text: str) -> AsyncIterator[str]:
        async for chunk in await self._model().astream_chat([_user(text)]):
            yield chunk.delta or ""

    async def converse(self, first: str, second: str) -> list[str]:
        model = self._model()
        opening = (await model.achat([_user(first)])).message
        closing = (await model.achat([_user(first), opening, _user(second)])).message
        return [opening.content, closing.content]

    async def use_tool(self, text: str) -> str:
        agent = FunctionAgent(tools=[multiply], llm=self._model())
        return str(await agent.run(text))

    def _model(self) -> Any:
        if self._kind == "like":
            return OpenAILike(
                model=MODEL,
                api_base=os.environ["OPENAI_BASE_URL"],
                api_key=os.environ["OPENAI_API_KEY"],
                is_chat_model=True,
                is_function_calling_model=True,
            )
        kind = OpenAIResponses if self._kind == "responses" else OpenAI
        return kind(model=KNOWN_MODEL, api_base=os.environ["OPENAI_BASE_URL"])


def _user(text: str) -> Any:
    return ChatMessage(role="user", content=text)


if __name__ == "__main__":
    serve(LlamaIndexDriver(sys.argv[1]))
