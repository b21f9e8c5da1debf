"""LiteLLM as a library."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import litellm

from tests.clients.drivers.protocol import (
    MODEL,
    MULTIPLY_PARAMETERS,
    ReportedFailure,
    multiply,
    serve,
)

NAME = f"openai/{MODEL}"
FUNCTION = {
    "name": "multiply",
    "description": "Multiply two whole numbers.",
    "parameters": MULTIPLY_PARAMETERS,
}


class LiteLlmChatDriver:
    """`litellm.acompletion`."""

    async def answer(self, text: str) -> str:
        return str((await _complete([_user(text)])).content)

    async def stream(self, text: str) -> AsyncIterator[str]:
        chunks: Any = await litellm.acompletion(model=NAME, messages=[_user(text)], stream=True)
        try:
            async for chunk in chunks:
                yield chunk.choices[0].delta.content or ""
        finally:
            await chunks.aclose()

    async def converse(self, first: str, second: str) -> list[str]:
        opening = await _complete([_user(first)])
        closing = await _complete([_user(first), opening, _user(second)])
        return [opening.content, closing.content]

    async def use_tool(self, text: str) -> str:
        tools = [{"type": "function", "function": FUNCTION}]
        messages: list[Any] = [_user(text)]
        message = await _complete(messages, tools=tools)
        messages.append(message)
        for call in message.tool_calls or ():
            output = multiply(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(output)})
        return str((await _complete(messages, tools=tools)).content)


class LiteLlmResponsesDriver:
    """`litellm.aresponses`."""

    async def answer(self, text: str) -> str:
        return str((await _respond([_user(text)])).output_text)

    async def stream(self, text: str) -> AsyncIterator[str]:
        events: Any = await litellm.aresponses(model=NAME, input=text, stream=True)
        try:
            async for event in events:
                if event.type == "response.failed":
                    raise ReportedFailure(str(event.response.error))
                if event.type == "response.output_text.delta":
                    yield event.delta
        finally:
            await events.response.aclose()  # the wrapper itself cannot be closed

    async def converse(self, first: str, second: str) -> list[str]:
        opening = await _respond([_user(first)])
        items = [_user(first), *map(_dump, opening.output), _user(second)]
        return [opening.output_text, (await _respond(items)).output_text]

    async def use_tool(self, text: str) -> str:
        tools = [{"type": "function", **FUNCTION}]
        items: list[Any] = [_user(text)]
        response = await _respond(items, tools=tools)
        for call in map(_dump, response.output):
            items.append(call)
            if call["type"] == "function_call":
                output = str(multiply(**json.loads(call["arguments"])))
                items.append(
                    {"type": "function_call_output", "call_id": call["call_id"], "output": output}
                )
        return str((await _respond(items, tools=tools)).output_text)


async def _complete(messages: list[Any], **options: Any) -> Any:
    completion: Any = await litellm.acompletion(model=NAME, messages=messages, **options)
    return completion.choices[0].message


async def _respond(items: list[Any], **options: Any) -> Any:
    response: Any = await litellm.aresponses(model=NAME, input=items, **options)
    if response.status == "failed":
        raise ReportedFailure(str(response.error))
    return response


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _dump(item: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = item if isinstance(item, dict) else item.model_dump(exclude_none=True)
    return dumped


if __name__ == "__main__":
    # Without it LiteLLM asks for a whole response and imitates a stream.
    litellm.register_model(
        {NAME: {"litellm_provider": "openai", "supports_native_streaming": True}}
    )
    serve(LiteLlmResponsesDriver() if "responses" in sys.argv else LiteLlmChatDriver())
