"""Request responses, and check each piece against the SDK's types."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import msgspec
import trio
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from hermes_trio.core.events import Event, Reasoning, Text, ToolCompleted, ToolOutput, ToolStarted
from hermes_trio.schema import replies
from tests.support.asgi import Exchange, HttpResponse, real_timeout
from tests.support.fakes import (
    HELLO,
    OTHER_KEY,
    AppHarness,
    End,
    ScriptedAgentFactory,
    Step,
    bearer,
    open_harness,
)
from tests.support.responses_stream_rules import TERMINAL, Reader
from tests.support.sse import Frame

RESPONSES = "/v1/responses"
CONVERSATIONS = "/v1/conversations"
BOB = bearer(OTHER_KEY)
Json = dict[str, Any]

# Text, thinking, two tools at once that end in the other order, and more text.
RICH: tuple[Event, ...] = (
    Reasoning("Let me "),
    Reasoning("see."),
    Text("Looking. "),
    ToolStarted("c1", "terminal", {"command": "make"}),
    ToolStarted("c2", "read_file", {"path": "a"}),
    ToolOutput("c1", "building"),
    ToolCompleted("c2", "contents"),
    ToolCompleted("c1", "built"),
    Text("All "),
    Text("done: é."),
)


def say(text: object = "Hi", /, **more: Any) -> Json:
    """Return the body of a request."""
    return {"input": text, **more}


def stream(text: object = "Hi", /, **more: Any) -> Json:
    """Return the body of a streamed request."""
    return say(text, stream=True, **more)


@asynccontextmanager
async def idle_harness(
    script: Iterable[Step] | ScriptedAgentFactory = HELLO, end: End = None, **more: Any
) -> AsyncIterator[AppHarness]:
    """Open a server that can host runs, and check at the end that no run, slot or reader is left."""
    async with open_harness(script, end, **more) as harness:
        yield harness
        await harness.until_idle()
        assert not harness.has_readers


@cache
def _event_type() -> TypeAdapter[Any]:
    return TypeAdapter(ResponseStreamEvent)


def checked_event(frame: Frame) -> Json:
    """Return the event of a frame, validated against the SDK's types and the OpenAPI document."""
    event: Json = frame.json
    assert frame.event == event["type"]
    _event_type().validate_python(event, strict=True)
    msgspec.convert(event, replies.ResponseEvent)
    if "response" in event:
        checked(event["response"])
    return event


def checked(response: Json) -> Json:
    """Validate a response against the SDK's type and the OpenAPI document; every field is required."""
    Response.model_validate(response, strict=True)
    msgspec.convert(response, replies.ResponseReply)
    return response


def events(answer: HttpResponse) -> list[Json]:
    """Return the events of a whole stream, validated by the strictest reader."""
    assert answer.status == 200, answer.body
    frames = [frame for frame in answer.frames if not frame.comment]
    assert [frame.is_done for frame in frames] == [False] * (len(frames) - 1) + [True]
    found = [checked_event(frame) for frame in frames[:-1]]
    Reader().read(found)
    return found


def final(answer: HttpResponse) -> Json:
    """Return the response in the terminal event."""
    last = events(answer)[-1]
    assert last["type"] in TERMINAL
    return dict(last["response"])


def whole(answer: HttpResponse) -> Json:
    """Return a response that was not streamed."""
    assert answer.status == 200, answer.body
    return checked(answer.json)


def as_text(response: Json) -> Json:
    """Return a response with tool results as plain text, which streams send as parts."""
    return {**response, "output": [_plain(item) for item in response["output"]]}


def _plain(item: Json) -> Json:
    if item["type"] != "function_call_output":
        return item
    return {**item, "output": "".join(part["text"] for part in item["output"])}


def text_of(response: Json) -> str:
    """Return all visible text."""
    messages = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part["text"] for item in messages for part in item["content"])


async def get(harness: AppHarness, response_id: str) -> Json:
    """Return a stored response."""
    return whole(await harness.client.get(f"{RESPONSES}/{response_id}"))


async def created(exchange: Exchange) -> str:
    """Return the id in the first event."""
    frame = await exchange.frame()
    assert frame.event == "response.created"
    return str(frame.json["response"]["id"])


async def until_ended(harness: AppHarness, count: int = 1) -> None:
    """Wait until this number of runs has ended."""
    with real_timeout():
        while len(harness.ends) < count:
            await trio.lowlevel.checkpoint()


def reason_of(response: Json) -> tuple[str, str]:
    """Return the status of a response, and the reason."""
    return response["status"], (response.get("hermes") or {}).get("reason", "")
