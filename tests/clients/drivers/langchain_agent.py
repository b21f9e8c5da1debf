"""LangChain: its chat model, and `create_agent` around it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from tests.clients.drivers.protocol import MODEL, multiply, serve


class LangChainDriver:
    """An agent of the framework whose model is the server."""

    def __init__(self, uses_responses: bool) -> None:
        self._model: Any = ChatOpenAI(model=MODEL, use_responses_api=uses_responses)

    def answer(self, text: str) -> str:
        return str(self._invoke([("user", text)])[-1].text)

    def stream(self, text: str) -> Iterator[str]:
        for chunk in self._model.stream(text):
            yield chunk.text

    def converse(self, first: str, second: str) -> list[str]:
        opening = self._invoke([("user", first)])
        closing = self._invoke([*opening, ("user", second)])
        return [opening[-1].text, closing[-1].text]

    def use_tool(self, text: str) -> str:
        return str(self._invoke([("user", text)], multiply)[-1].text)

    def _invoke(self, messages: list[Any], *tools: Any) -> Any:
        agent: Any = create_agent(self._model, tools=list(tools))
        return agent.invoke({"messages": messages})["messages"]


if __name__ == "__main__":
    serve(LangChainDriver("responses" in sys.argv))
