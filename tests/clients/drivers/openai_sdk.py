"""The OpenAI SDK for Python: both APIs, in plain loops and with the stream helpers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from openai import OpenAI

from tests.clients.drivers.protocol import (
    MODEL,
    MULTIPLY_PARAMETERS,
    ReportedFailure,
    multiply,
    serve,
)

DESCRIPTION = "Multiply two whole numbers."
FUNCTION = {"name": "multiply", "description": DESCRIPTION, "parameters": MULTIPLY_PARAMETERS}


class ChatDriver:
    """Chat Completions."""

    def __init__(self, has_helper: bool) -> None:
        self._completions: Any = OpenAI().chat.completions
        self._has_helper = has_helper

    def answer(self, text: str) -> str:
        return str(self._complete([_user(text)]).content)

    def stream(self, text: str) -> Iterator[str]:
        yield from self._help(text) if self._has_helper else self._loop(text)

    def converse(self, first: str, second: str) -> list[str]:
        opening = self._complete([_user(first)])
        closing = self._complete([_user(first), opening, _user(second)])
        return [opening.content, closing.content]

    def use_tool(self, text: str) -> str:
        tools = [{"type": "function", "function": FUNCTION}]
        messages: list[Any] = [_user(text)]
        message = self._complete(messages, tools=tools)
        messages.append(message)
        for call in message.tool_calls or ():
            output = multiply(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(output)})
        return str(self._complete(messages, tools=tools).content)

    def _complete(self, messages: list[Any], **options: Any) -> Any:
        completion = self._completions.create(model=MODEL, messages=messages, **options)
        return completion.choices[0].message

    def _loop(self, text: str) -> Iterator[str]:
        with self._completions.create(model=MODEL, messages=[_user(text)], stream=True) as chunks:
            for chunk in chunks:
                yield chunk.choices[0].delta.content or ""

    def _help(self, text: str) -> Iterator[str]:
        with self._completions.stream(model=MODEL, messages=[_user(text)]) as events:
            for event in events:
                if event.type == "content.delta":
                    yield event.delta


class ResponsesDriver:
    """Responses."""

    def __init__(self, has_helper: bool) -> None:
        self._responses: Any = OpenAI().responses
        self._has_helper = has_helper

    def answer(self, text: str) -> str:
        return str(self._create([_user(text)]).output_text)

    def stream(self, text: str) -> Iterator[str]:
        options = {"model": MODEL, "input": text}
        with (
            self._responses.stream(**options)
            if self._has_helper
            else self._responses.create(**options, stream=True)
        ) as events:
            for event in events:
                if event.type == "response.failed":
                    raise ReportedFailure(event.response.error.message)
                if event.type == "response.output_text.delta":
                    yield event.delta

    def converse(self, first: str, second: str) -> list[str]:
        opening = self._create([_user(first)])
        closing = self._create([_user(first), *opening.output, _user(second)])
        return [opening.output_text, closing.output_text]

    def use_tool(self, text: str) -> str:
        tools = [{"type": "function", **FUNCTION}]
        items: list[Any] = [_user(text)]
        response = self._create(items, tools=tools)
        items += response.output
        for call in response.output:
            if call.type == "function_call":
                output = str(multiply(**json.loads(call.arguments)))
                items.append(
                    {"type": "function_call_output", "call_id": call.call_id, "output": output}
                )
        return str(self._create(items, tools=tools).output_text)

    def _create(self, items: list[Any], **options: Any) -> Any:
        response = self._responses.create(model=MODEL, input=items, **options)
        if response.status == "failed":
            raise ReportedFailure(response.error.message)
        return response


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


if __name__ == "__main__":
    has_helper = "helper" in sys.argv
    serve(ChatDriver(has_helper) if "chat" in sys.argv else ResponsesDriver(has_helper))
