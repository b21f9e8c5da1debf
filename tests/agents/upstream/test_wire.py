"""Requests: what reaches the model of a turn and a profile."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_trio.agent.interface import AgentConfig, TurnRequest
from hermes_trio.agents.upstream.completion import Completion
from hermes_trio.agents.upstream.wire import (
    NO_RESULT,
    assistant_message,
    fixed_fields,
    initial_messages,
    offer_tools,
)
from hermes_trio.core.messages import Message, ToolCall
from hermes_trio.tools.base import tool

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
PARTS = ({"type": "text", "text": "What is this?"}, IMAGE)


def turn(message: Any = "Hi", **more: Any) -> TurnRequest:
    return TurnRequest("run_1", "s", message, **more)


def messages(config: AgentConfig | None = None, /, **more: Any) -> list[Any]:
    return initial_messages(config or AgentConfig(), turn(**more))


@pytest.mark.parametrize(
    ("prompt", "instructions", "past", "system"),
    [
        ("You are A.", "Be brief.", "In French.", "You are A.\n\nBe brief.\n\nIn French."),
        ("", "Be brief.", "", "Be brief."),
        ("You are A.", "", "", "You are A."),
    ],
)
def test_layers_of_the_system_prompt(
    prompt: str, instructions: str, past: str, system: str
) -> None:
    history = (Message("user", "One"), Message("system", past), Message("assistant", "Two"))
    found = messages(AgentConfig(system_prompt=prompt), instructions=instructions, history=history)
    assert found[0] == {"role": "system", "content": system}
    assert [message["role"] for message in found] == ["system", "user", "assistant", "user"]


def test_a_system_message_of_parts_is_its_text() -> None:
    assert messages(history=(Message("system", PARTS),))[0] == {
        "role": "system",
        "content": "What is this?",
    }


def test_no_system_prompt_at_all() -> None:
    assert messages() == [{"role": "user", "content": "Hi"}]


def test_images() -> None:
    past = (Message("user", PARTS, name="ann"), Message("assistant", "A cat."))
    found = messages(message=PARTS, history=past)
    assert found[0] == {"role": "user", "content": list(PARTS), "name": "ann"}
    assert found[2] == {"role": "user", "content": list(PARTS)}


CALLS = (ToolCall("c1", "f", '{"a": 1}'), ToolCall("c2", "g", ""))


def test_calls_of_the_past() -> None:
    past = (
        Message("assistant", "", CALLS, reasoning="Hm."),
        Message("tool", "one", tool_call_id="c1", name="f"),
        Message("tool", (IMAGE,), tool_call_id="c2", name="g"),
    )
    assert messages(message="", history=past) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"a": 1}'},
                },
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": [IMAGE]},
    ]


def test_unanswered_calls_get_a_result() -> None:
    past = (Message("assistant", "", CALLS), Message("tool", "two", tool_call_id="c2"))
    found = messages(message="Never mind.", history=past)
    assert [message.get("tool_call_id") for message in found] == [None, "c1", "c2", None]
    assert found[1]["content"] == NO_RESULT


def test_an_assistant_that_only_thought_is_left_out() -> None:
    assert messages(history=(Message("assistant", "", reasoning="Hm."),)) == messages()


def test_nothing_said_at_all_is_still_a_question() -> None:
    assert messages(message="") == [{"role": "user", "content": ""}]


@pytest.mark.parametrize("keep", [True, False])
def test_reasoning_goes_back_only_if_wanted(keep: bool) -> None:
    config = AgentConfig(options={"send_reasoning": keep})
    past = (Message("assistant", "Two", reasoning="Hm."),)
    now = assistant_message(Completion("Two", "Hm."), (), config)
    assert [messages(config, history=past)[0], now] == [
        {"role": "assistant", "content": "Two", **({"reasoning_content": "Hm."} if keep else {})}
    ] * 2


SCHEMA = {"name": "x", "schema": {"type": "object"}, "strict": True}


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"temperature": 0, "top_p": 0.5, "seed": 1}, {"temperature": 0, "top_p": 0.5, "seed": 1}),
        ({"max_tokens": 5, "stop": ["x"]}, {"max_tokens": 5, "stop": ["x"]}),
        ({"max_output_tokens": 5}, {"max_tokens": 5}),
        ({"max_tokens": 4, "max_output_tokens": 5}, {"max_tokens": 4}),
        ({"reasoning_effort": "low", "user": "u"}, {"reasoning_effort": "low", "user": "u"}),
        (
            {"presence_penalty": 1, "frequency_penalty": 2},
            {"presence_penalty": 1, "frequency_penalty": 2},
        ),
        (
            {"response_format": {"type": "json_object"}},
            {"response_format": {"type": "json_object"}},
        ),
        (
            {"text": {"format": {"type": "json_object"}}},
            {"response_format": {"type": "json_object"}},
        ),
        (
            {
                "text": {
                    "format": {"type": "json_schema", "description": None, **SCHEMA},
                    "verbosity": "low",
                }
            },
            {"response_format": {"type": "json_schema", "json_schema": SCHEMA}, "verbosity": "low"},
        ),
        (
            {"text": {"format": {"type": "json_schema", "json_schema": SCHEMA}}},
            {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
        ),
        ({"text": {"format": {"type": "text"}}}, {}),
        ({"text": {}, "metadata": {"a": "b"}, "include": ["x"], "truncation": "auto"}, {}),
        ({"text": "odd"}, {}),
    ],
)
def test_options(options: Any, fields: Any) -> None:
    assert fixed_fields(AgentConfig(), turn(options=options), "") == fields


def test_the_profile_has_defaults_and_the_model() -> None:
    config = AgentConfig(options={"request": {"temperature": 1, "top_k": 5, "model": "x"}})
    found = fixed_fields(config, turn(model="theirs", options={"temperature": 0}), "m")
    assert found == {"temperature": 0, "top_k": 5, "model": "m"}
    assert fixed_fields(AgentConfig(), turn(model="theirs"), "") == {}


@tool
async def ours(text: str) -> str:
    """Do it."""
    return text


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ({"type": "function", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
        (
            {"type": "function", "function": {"name": "f"}},
            {"type": "function", "function": {"name": "f"}},
        ),
        ({"type": "function"}, None),
        ({"type": "file_search"}, None),
        (None, None),
    ],
)
def test_the_choice_of_a_tool(choice: Any, sent: Any) -> None:
    found = offer_tools([ours], {"tool_choice": choice}).request_fields(0, is_last=False)
    assert found.get("tool_choice") == sent


@pytest.mark.parametrize(
    ("choice", "later"), [("none", "none"), ("auto", "auto"), ("required", "auto")]
)
def test_the_choice_in_later_rounds(choice: str, later: str) -> None:
    offered = offer_tools([ours], {"tool_choice": choice})
    assert offered.request_fields(1, is_last=False)["tool_choice"] == later
    assert offered.request_fields(1, is_last=True)["tool_choice"] == "none"


def test_without_tools_nothing_is_said_of_them() -> None:
    options = {
        "tools": [{"type": "web_search"}, {"type": "function"}, "odd"],
        "tool_choice": "auto",
    }
    offered = offer_tools([], {**options, "parallel_tool_calls": True})
    assert offered.request_fields(0, is_last=False) == {}


def test_a_tool_as_the_model_sees_it() -> None:
    [shown] = offer_tools([ours], {}).tools
    assert shown["type"] == "function"
    assert (shown["function"]["name"], shown["function"]["description"]) == ("ours", "Do it.")
    assert shown["function"]["parameters"]["required"] == ["text"]
