"""What the Open Responses specification demands of a server, with the demo and the upstream agent.

The compliance suite of the specification is not published as a package, so these are checks of our
own for the same requests: each response and each event is held to the types that
`openresponses-types` has generated from the specification. Left out are WebSocket and compaction,
which the server does not have.

``nox -s open_responses`` installs the types; the normal suite skips these tests.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from attrs import frozen

from tests.support.scripted_upstream import (
    Call,
    ReceivedRequest,
    Step,
    Think,
    calls,
    says,
    serve_scripts,
)
from tests.support.server_process import TIMEOUT, LaunchOptions, ServerProcess, kill, start
from tests.support.sse import parse_sse

types: Any = pytest.importorskip(
    "openresponses_types.types",
    reason="openresponses-types is installed by `nox -s open_responses` only",
)

Json = dict[str, Any]
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}
QUESTION = "What's the weather like in San Francisco?"
ARGUMENTS = {"location": "San Francisco, CA"}


def message(role: str, content: Any, **more: Any) -> Json:
    """An item of the input."""
    return {"type": "message", "role": role, "content": content, **more}


CASES: Mapping[str, Json] = {
    "text": {"input": [message("user", "Say hello in exactly 3 words.")]},
    "a plain string": {"input": "Say hello."},
    "system message": {
        "input": [message("system", "You are a pirate."), message("user", "Say hello.")]
    },
    "developer message": {
        "input": [message("developer", "You are a pirate."), message("user", "Say hello.")]
    },
    "image": {
        "input": [
            message(
                "user",
                [
                    {"type": "input_text", "text": "What do you see?"},
                    {"type": "input_image", "image_url": PIXEL},
                ],
            )
        ]
    },
    "history": {
        "input": [
            message("user", "My name is Alice."),
            message("assistant", "Hello Alice! How can I help you?"),
            message("user", "What is my name?"),
        ]
    },
    "assistant messages with a phase": {
        "input": [
            message("assistant", "I should answer with the number.", phase="commentary"),
            message("assistant", "The number is four.", phase="final_answer"),
            message("user", "Repeat only the number."),
        ]
    },
    "every option": {
        "input": "Say hello.",
        "instructions": "Be brief.",
        "temperature": 0.5,
        "top_p": 0.5,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
        "top_logprobs": 1,
        "max_output_tokens": 1000,
        "max_tool_calls": 3,
        "parallel_tool_calls": False,
        "truncation": "auto",
        "service_tier": "default",
        "safety_identifier": "somebody",
        "prompt_cache_key": "something",
        "metadata": {"topic": "tests"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "text"}, "verbosity": "low"},
    },
}


@frozen
class Target:
    """A server with one of the agents."""

    agent: str
    server: ServerProcess

    async def create(self, **body: Any) -> httpx2.Response:
        """Create a response."""
        headers = {"Authorization": f"Bearer {self.server.key}"}
        async with httpx2.AsyncClient(timeout=TIMEOUT, trust_env=False) as client:
            return await client.post(
                f"{self.server.url}/v1/responses",
                json={"model": "hermes-agent", **body},
                headers=headers,
            )

    async def respond(self, **body: Any) -> Json:
        """Create a response that is not streamed, and check it."""
        reply = await self.create(**body)
        assert reply.status_code == 200, reply.text
        return check_resource(reply.json())

    async def stream(self, **body: Any) -> list[Json]:
        """Create a streamed response, and check every event."""
        reply = await self.create(**body, stream=True)
        assert reply.status_code == 200, reply.text
        assert reply.headers["content-type"].startswith("text/event-stream")
        *frames, last = parse_sse(reply.content)
        assert last.is_done
        events = [check_event(frame.event, frame.json) for frame in frames if not frame.comment]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        return events


def answer_as_model(asked: ReceivedRequest) -> Sequence[Step]:
    """Answer as a model would: call the client's tool if it is offered, once; else think first."""
    body = asked.json
    offered = [tool["function"]["name"] for tool in body.get("tools", ())]
    if "get_weather" in offered and body["messages"][-1]["role"] == "user":
        return calls(Call("get_weather", ARGUMENTS))
    return (Think("They want "), Think("a greeting."), *says("Ahoy, ", "there, ", "friend."))


@pytest.fixture(params=["demo", "upstream"])
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    agent: str = request.param
    async with serve_scripts(*[answer_as_model] * 20) as model:
        settings = {"agent": agent}
        if agent == "upstream":
            settings |= {"base_url": model.base_url, "upstream_model": "m"}
        server = await trio.to_thread.run_sync(start, LaunchOptions(tmp_path, settings=settings))
        try:
            yield Target(agent, server)
            await trio.to_thread.run_sync(server.stop)
            assert server.complaints("") == [], server.log
        finally:
            await trio.to_thread.run_sync(kill, server)


def check_resource(response: Json) -> Json:
    """Hold a response to the specification, strictly."""
    types.ResponseResource.model_validate_json(json.dumps(response), strict=True)
    return response


def event_types() -> dict[str, Any]:
    """The classes of the events by their type."""
    classes = [value for name, value in vars(types).items() if name.endswith("StreamingEvent")]
    return {next(iter(kind.model_fields["type"].annotation)).value: kind for kind in classes}


def check_event(name: str, event: Json) -> Json:
    """Hold an event to the specification, strictly."""
    assert event["type"] == name
    kind = event_types().get(name)
    assert kind is not None, f"{name} is no event of the specification"
    kind.model_validate_json(json.dumps(event), strict=True)
    return event


def text_of(response: Json) -> str:
    """All text of a response."""
    messages = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part["text"] for item in messages for part in item["content"])


@pytest.mark.parametrize("name", CASES)
async def test_a_response(target: Target, name: str) -> None:
    response = await target.respond(**CASES[name])
    assert response["status"] == "completed"
    assert text_of(response)


@pytest.mark.parametrize("name", CASES)
async def test_a_stream(target: Target, name: str) -> None:
    events = await target.stream(**CASES[name])
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1]["type"] == "response.completed"
    response = check_resource(events[-1]["response"])
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == text_of(response) != ""


async def test_a_tool_is_called_and_answered(target: Target) -> None:
    question = message("user", QUESTION)
    response = await target.respond(input=[question], tools=[WEATHER])
    (call,) = [item for item in response["output"] if item["type"] == "function_call"]
    assert call["name"] == "get_weather"
    assert list(json.loads(call["arguments"])) == ["location"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    again = await target.respond(input=[question, *response["output"], output], tools=[WEATHER])
    assert again["status"] == "completed"
    assert text_of(again)
    chained = await target.respond(
        input=[output], tools=[WEATHER], previous_response_id=response["id"]
    )
    assert chained["previous_response_id"] == response["id"]
    assert text_of(chained)


async def test_a_tool_is_called_in_a_stream(target: Target) -> None:
    events = await target.stream(input=[message("user", QUESTION)], tools=[WEATHER])
    types_seen = [event["type"] for event in events]
    assert "response.function_call_arguments.delta" in types_seen
    assert "response.function_call_arguments.done" in types_seen
    assert "function_call" in [item["type"] for item in events[-1]["response"]["output"]]


async def test_reasoning_in_a_stream(target: Target) -> None:
    events = await target.stream(input="/think about it" if target.agent == "demo" else "Hello")
    types_seen = [event["type"] for event in events]
    assert "response.reasoning_summary_text.delta" in types_seen
    assert "reasoning" in [item["type"] for item in events[-1]["response"]["output"]]


async def test_a_response_that_was_cut_short(target: Target) -> None:
    if target.agent != "demo":
        pytest.skip("the scripted model has no limit of tokens")
    response = await target.respond(input="/long 100", max_output_tokens=30)
    assert (response["status"], response["incomplete_details"]["reason"]) == (
        "incomplete",
        "max_output_tokens",
    )


async def test_refusals_have_the_standard_form(target: Target) -> None:
    missing = await target.create(input="hello", previous_response_id="resp_missing")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "previous_response_not_found"
    wrong = await target.create(input=17)
    assert wrong.status_code == 400
    assert wrong.json()["error"]["type"] == "invalid_request_error"
