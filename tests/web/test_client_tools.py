"""Tools that the client runs.

The turn ends with the call, and the next one goes on from its result.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from hermes_trio.core.events import ClientCall, Text, ToolCompleted, ToolStarted
from hermes_trio.core.messages import Message, ToolCall
from tests.support.chat_api import chunks
from tests.support.fakes import (
    CHAT,
    OTHER_KEY,
    DemoAgentFactory,
    Step,
    ask,
    ask_stream,
    bearer,
    make_harness,
)
from tests.support.responses_api import RESPONSES, idle_harness, say, stream, text_of

Json = dict[str, Any]
ARGUMENTS = '{"city": "Oslo"}'
ASKED: tuple[Step, ...] = (
    Text("Let me see."),
    ClientCall("call_a", "get_weather", ARGUMENTS),
    ClientCall("call_b", "get_time"),
)
SESSION = {"X-Hermes-Session-Id": "s"}
RESULTS = [
    {"role": "tool", "tool_call_id": "call_a", "content": "rain"},
    {"role": "tool", "tool_call_id": "call_b", "content": ""},
]


async def test_chat_streamed() -> None:
    answer = await make_harness(ASKED).client.send(CHAT, ask_stream())
    deltas = [chunk["choices"][0] for chunk in chunks(answer)]
    calls = [call for choice in deltas for call in choice["delta"].get("tool_calls", ())]
    assert calls == [
        {"index": 0, "id": "call_a", "type": "function", "function": {"name": "get_weather", "arguments": ARGUMENTS}},
        {"index": 1, "id": "call_b", "type": "function", "function": {"name": "get_time", "arguments": "{}"}},
    ]  # fmt: skip
    assert deltas[-1]["finish_reason"] == "tool_calls"
    assert b"hermes.tool.progress" not in answer.body, "nothing runs here"


async def test_chat_in_one_piece() -> None:
    answer = await make_harness(ASKED[1:]).client.send(CHAT, ask())
    (choice,) = ChatCompletion.model_validate(answer.json, strict=True).choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert [call.id for call in choice.message.tool_calls or ()] == ["call_a", "call_b"]


async def test_chat_goes_on_from_what_the_client_sends() -> None:
    harness = make_harness()
    called = {
        "id": "call_a",
        "type": "function",
        "function": {"name": "get_weather", "arguments": ARGUMENTS},
    }
    said = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        RESULTS[0],
    ]
    assert (await harness.client.send(CHAT, {"messages": said})).status == 200
    (turn,) = harness.agents.turns
    assert turn.message == ""
    assert [message.role for message in turn.history] == ["user", "assistant", "tool"]
    assert turn.history[-1] == Message("tool", "rain", tool_call_id="call_a")


async def test_a_session_goes_on_from_the_results_alone() -> None:
    harness = make_harness(ASKED)
    await harness.client.send(CHAT, ask("Weather?"), SESSION)
    harness.agents.script = [Text("Rain.")]
    await harness.client.send(CHAT, {"messages": RESULTS}, SESSION)
    turn = harness.agents.turns[-1]
    assert turn.message == ""
    calls = (ToolCall("call_a", "get_weather", ARGUMENTS), ToolCall("call_b", "get_time", "{}"))
    assert turn.history == (
        Message("user", "Weather?"),
        Message("assistant", "Let me see.", tool_calls=calls),
        Message("tool", "rain", tool_call_id="call_a"),
        Message("tool", "", tool_call_id="call_b"),
    )
    roles = [role for role, _ in await harness.transcript("s")]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]


async def test_responses_and_the_chain() -> None:
    async with idle_harness(ASKED) as harness:
        first = (await harness.client.send(RESPONSES, say("Weather?"))).json
        Response.model_validate(first, strict=False)
        kinds = [item["type"] for item in first["output"]]
        assert kinds == ["message", "function_call", "function_call"], (
            "and no output: the client has it"
        )
        assert first["output"][1]["arguments"] == ARGUMENTS
        assert (await harness.client.get(f"{RESPONSES}/{first['id']}")).json["output"] == first[
            "output"
        ]
        results = [
            {"type": "function_call_output", "call_id": "call_a", "output": "rain"},
            {"type": "function_call_output", "call_id": "call_b", "output": "noon"},
        ]
        harness.agents.script = [Text("Rain at noon.")]
        await harness.client.send(RESPONSES, say(results, previous_response_id=first["id"]))
        turn = harness.agents.turns[-1]
        assert [(message.role, message.tool_call_id) for message in turn.history] == [
            ("user", ""), ("assistant", ""), ("tool", "call_a"), ("tool", "call_b"),
        ]  # fmt: skip


async def test_both_kinds_in_one_round() -> None:
    script: list[Step] = [
        ToolStarted("x", "terminal", {}),
        ToolCompleted("x", "ran"),
        ClientCall("x", "mine", "{}"),
    ]
    async with idle_harness(script) as harness:
        answer = await harness.client.send(RESPONSES, stream())
        (final,) = [frame.json for frame in answer.frames if frame.event == "response.completed"]
        output = final["response"]["output"]
        assert [(item["type"], item["call_id"]) for item in output] == [
            ("function_call", "x"), ("function_call_output", "x"), ("function_call", "x-2"),
        ]  # fmt: skip
        assert json.loads(output[0]["arguments"]) == {}


TOOL: Json = {"type": "function", "name": "lookup", "parameters": {"type": "object"}}


async def test_the_demo_calls_a_tool_of_a_chat_client_and_shows_its_result() -> None:
    async with idle_harness(DemoAgentFactory()) as harness:
        tools = [{"type": "function", "function": TOOL}]
        said: list[Json] = [{"role": "user", "content": '/call lookup {"word": "trio"}'}]
        answer = (await harness.client.send(CHAT, {"messages": said, "tools": tools})).json
        message = answer["choices"][0]["message"]
        (call,) = message["tool_calls"]
        assert call["function"] == {"name": "lookup", "arguments": '{"word": "trio"}'}
        said += [message, {"role": "tool", "tool_call_id": call["id"], "content": "three"}]
        answer = (await harness.client.send(CHAT, {"messages": said, "tools": tools})).json
        assert answer["choices"][0]["message"]["content"].endswith("- `lookup`: three")


async def test_the_demo_does_so_on_responses() -> None:
    async with idle_harness(DemoAgentFactory()) as harness:
        asked = say('/call lookup {"word": "trio"}', tools=[TOOL])
        first = (await harness.client.send(RESPONSES, asked)).json
        call = first["output"][-1]
        assert (call["type"], call["name"]) == ("function_call", "lookup")
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "three"}
        asked = say([result], previous_response_id=first["id"], tools=[TOOL])
        second = (await harness.client.send(RESPONSES, asked)).json
        assert text_of(second).endswith("- `lookup`: three")


async def test_chat_knows_what_the_server_did_before_the_clients_call() -> None:
    script: list[Step] = [
        ToolStarted("b", "terminal", {"command": "ls"}),
        ToolCompleted("b", "a.txt"),
        ClientCall("call_a", "get_weather", ARGUMENTS),
    ]
    harness = make_harness(script)
    first = await harness.client.send(CHAT, ask("Go"))
    said = first.json["choices"][0]["message"]
    body = {"messages": [{"role": "user", "content": "Go"}, said, RESULTS[0]]}
    await harness.client.send(CHAT, body)
    calls = (
        ToolCall("b", "terminal", '{"command": "ls"}'),
        ToolCall("call_a", "get_weather", ARGUMENTS),
    )
    assert harness.agents.turns[-1].history == (
        Message("user", "Go"),
        Message("assistant", "", calls),
        Message("tool", "a.txt", tool_call_id="b", name="terminal"),
        Message("tool", "rain", tool_call_id="call_a"),
    )


@pytest.mark.parametrize("headers", [bearer(OTHER_KEY), {"X-Hermes-Session-Id": "another"}])
async def test_chat_puts_back_only_what_is_on_record_for_the_session(
    headers: dict[str, str],
) -> None:
    script: list[Step] = [
        ToolStarted("b", "terminal"),
        ToolCompleted("b", "ann's secret"),
        ClientCall("call_a", "get_weather", ARGUMENTS),
    ]
    harness = make_harness(script)
    said = (await harness.client.send(CHAT, ask("Go"))).json["choices"][0]["message"]
    body = {"messages": [{"role": "user", "content": "Go"}, said, RESULTS[0]]}
    await harness.client.send(CHAT, body, headers)
    assert "secret" not in str(harness.agents.turns[-1].history)
