"""Responses requests: what is read out of a body, and how a wrong one is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response

from hermes_trio.core.dialects.responses import response_object
from hermes_trio.core.errors import ApiError
from hermes_trio.core.messages import Message, ToolCall
from hermes_trio.schema.conversations import find_approval_replies, find_references
from hermes_trio.schema.responses import ResponsesRequest, parse_responses, with_input
from tests.support.responses_stream_rules import HEADER

CALL = {"type": "function_call", "call_id": "c1", "name": "t", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "r"}


def parsed(said: Any = "hello", **fields: Any) -> ResponsesRequest:
    return parse_responses(json.dumps({"input": said, **fields}).encode())


def refused(body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_responses(json.dumps(body).encode())
    assert caught.value.status == 400
    return caught.value


def test_a_text_is_the_question() -> None:
    request = parsed()
    assert request.message == "hello"
    assert request.messages == (Message("user", "hello"),)
    assert request.history == ()
    [item] = request.input_items
    assert item["content"] == [{"type": "input_text", "text": "hello"}]


def test_defaults() -> None:
    request = parsed()
    assert (request.model, request.stream, request.store, request.background) == (
        "",
        False,
        True,
        False,
    )
    assert (request.instructions, request.has_instructions, request.truncate) == ("", False, False)
    assert (request.previous_response_id, request.conversation) == ("", "")
    assert (request.explicit_history, request.metadata, request.options) == ((), {}, {})
    assert request.echo == {"store": True}


def test_the_last_message_is_the_question_and_the_rest_is_history() -> None:
    request = parsed(
        [
            "one",
            {"role": "assistant", "content": "1"},
            CALL,
            RESULT,
            {"role": "user", "content": "two"},
        ]
    )
    assert request.message == "two"
    assert request.history == (
        Message("user", "one"),
        Message("assistant", "1", (ToolCall("c1", "t", "{}"),)),
        Message("tool", "r", tool_call_id="c1", name="t"),
    )
    assert request.messages == (*request.history, Message("user", "two"))
    kinds = [item["type"] for item in request.input_items]
    assert kinds == ["message", "message", "function_call", "function_call_output", "message"]


def test_results_of_the_clients_own_tools_need_no_question() -> None:
    request = parsed([RESULT], previous_response_id="resp_1")
    assert request.message == ""
    assert request.history == request.messages == (Message("tool", "r", tool_call_id="c1"),)


def test_the_start_of_an_answer_is_no_question() -> None:
    start = {"role": "assistant", "content": "1, 2,"}
    request = parsed(["Count.", start])
    assert (request.message, request.is_continuation) == ("", True)
    told = (Message("user", "Count."), Message("assistant", "1, 2,"))
    assert request.history == request.messages == told
    assert not parsed([start, "Count."]).is_continuation
    with pytest.raises(ApiError, match="calls tools: send their results") as caught:
        parsed([start, CALL])
    assert (caught.value.status, caught.value.param) == (400, "input")


def test_system_messages_are_instructions_too() -> None:
    said = [{"role": "developer", "content": "be kind"}, {"role": "system", "content": ""}, "hello"]
    request = parsed(said, instructions="be brief")
    assert request.instructions == "be brief\nbe kind"
    assert request.has_instructions
    assert request.messages == (Message("user", "hello"),)
    assert request.echo["instructions"] == "be brief"
    assert len(request.input_items) == 3


def test_fields_are_read() -> None:
    request = parsed(
        model="m",
        stream="yes",
        background=1,
        truncation="auto",
        previous_response_id="resp_1",
        temperature=1,
        max_output_tokens=20,
        reasoning={"effort": "low"},
        text={"verbosity": "low"},
        tools=[{"type": "function", "name": "t"}, {"type": "web_search"}],
        tool_choice={"type": "function", "name": "t"},
        metadata={"a": "b"},
        stream_options={"include_obfuscation": False},
        include=["reasoning.encrypted_content"],
        unknown={"is": "ignored"},
    )
    assert (request.model, request.stream, request.background, request.truncate) == (
        "m",
        True,
        True,
        True,
    )
    assert request.previous_response_id == "resp_1"
    assert request.metadata == {"a": "b"}
    assert request.options == {
        "temperature": 1.0,
        "max_tokens": 20,
        "reasoning": {"effort": "low"},
        "reasoning_effort": "low",
        "text": {"verbosity": "low"},
        "tools": [{"type": "function", "name": "t"}, {"type": "web_search"}],
        "tool_choice": {"type": "function", "name": "t"},
        "include": ["reasoning.encrypted_content"],
        "truncation": "auto",
        "metadata": {"a": "b"},
    }


def test_what_answers_repeat_satisfies_the_sdk() -> None:
    request = parsed(
        tools=[
            {"type": "function", "name": "t"},
            {"type": "function", "function": {"name": "u", "parameters": {"type": "object"}}},
            {"type": "web_search"},
        ],
        tool_choice="required",
        reasoning={"effort": "low"},
        text={"verbosity": "low"},
        service_tier="auto",
        previous_response_id="resp_0",
        max_output_tokens=5,
        top_logprobs=3,
        store=False,
    )
    shown = response_object(evolve(HEADER, request=request.echo), ())
    assert Response.model_validate(shown, strict=True).previous_response_id == "resp_0"
    assert shown["tools"][1] == {
        "type": "function",
        "name": "u",
        "description": None,
        "parameters": {"type": "object"},
        "strict": None,
    }
    assert shown["reasoning"] == {"effort": "low", "summary": None}
    assert shown["text"] == {"format": {"type": "text"}, "verbosity": "low"}
    assert (shown["store"], shown["top_logprobs"], shown["tool_choice"]) == (False, 3, "required")


@pytest.mark.parametrize(
    ("given_as", "meant"),
    [("my chat", "my chat"), ({"id": "conv_1"}, "conv_1"), ("", ""), (None, "")],
)
def test_conversations_by_name_or_id(given_as: Any, meant: str) -> None:
    assert parsed(conversation=given_as).conversation == meant


def test_an_explicit_history_is_read() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    request = parsed(
        conversation_history=[
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "one"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "r", "tool_call_id": "c1", "name": "t"},
        ]
    )
    assert request.explicit_history == (
        Message("system", "be brief"),
        Message("user", "one"),
        Message("assistant", "", (ToolCall("c1", "t", "{}"),)),
        Message("tool", "r", tool_call_id="c1", name="t"),
    )


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": {}}, "input"),
        ({"input": []}, "input"),
        ({"input": "  "}, "input"),
        ({"input": [CALL]}, "input"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input"),
        ({"input": [{"role": "system", "content": "x"}]}, "input"),
        ({"input": ["x", 5]}, "input[1]"),
        ({"input": ["x", None]}, "input[1]"),
        ({"input": [{"type": 5}]}, "input[0].type"),
        ({"input": [{"type": "item_reference", "id": 5}]}, "input[0].id"),
        ({"input": [{"type": "web_search_call"}]}, "input[0].type"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": {}}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "video"}]}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": "x", "status": "odd"}]}, "input[0].status"),
        ({"input": [{**CALL, "call_id": ""}]}, "input[0].call_id"),
        ({"input": [{**CALL, "name": None}]}, "input[0].name"),
        ({"input": [{**CALL, "arguments": {}}]}, "input[0].arguments"),
        ({"input": [{**RESULT, "output": None}]}, "input[0].output"),
        ({"input": [{**RESULT, "call_id": 5}]}, "input[0].call_id"),
        ({"input": [{"type": "reasoning", "summary": "x"}]}, "input[0].summary"),
        ({"input": [{"type": "reasoning", "summary": ["x"]}]}, "input[0].summary[0]"),
        ({"input": [{"type": "reasoning", "summary": [{"text": 5}]}]}, "input[0].summary[0].text"),
        ({"input": "x", "model": 5}, "model"),
        ({"input": "x", "instructions": []}, "instructions"),
        ({"input": "x", "conversation": "c", "previous_response_id": "r"}, "conversation"),
        ({"input": "x", "conversation": {}}, "conversation.id"),
        ({"input": "x", "conversation": "c" * 257}, "conversation"),
        ({"input": "x", "previous_response_id": "r" * 257}, "previous_response_id"),
        ({"input": "x", "conversation_history": {}}, "conversation_history"),
        ({"input": "x", "conversation_history": ["x"]}, "conversation_history[0]"),
        (
            {"input": "x", "conversation_history": [{"role": "user"}]},
            "conversation_history[0].content",
        ),
        (
            {"input": "x", "conversation_history": [{"content": "x"}]},
            "conversation_history[0].role",
        ),
        (
            {"input": "x", "conversation_history": [{"role": "wizard", "content": ""}]},
            "conversation_history[0].role",
        ),
        ({"input": "x", "background": True, "store": False}, "background"),
        ({"input": "x", "truncation": "some"}, "truncation"),
        ({"input": "x", "metadata": []}, "metadata"),
        ({"input": "x", "metadata": {"a": 5}}, "metadata.a"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "x", "max_tool_calls": 0}, "max_tool_calls"),
        ({"input": "x", "temperature": "hot"}, "temperature"),
        ({"input": "x", "temperature": 3}, "temperature"),
        ({"input": "x", "top_p": -1}, "top_p"),
        ({"input": "x", "top_logprobs": 21}, "top_logprobs"),
        ({"input": "x", "tools": [1]}, "tools[0]"),
        ({"input": "x", "tools": [{"name": "t"}]}, "tools[0].type"),
        ({"input": "x", "tools": [{"type": 5}]}, "tools[0].type"),
        ({"input": "x", "tool_choice": "sometimes"}, "tool_choice"),
        ({"input": "x", "parallel_tool_calls": "x"}, "parallel_tool_calls"),
        ({"input": "x", "reasoning": "x"}, "reasoning"),
        ({"input": "x", "include": "x"}, "include"),
    ],
)
def test_a_wrong_body_is_refused_by_the_name_of_its_parameter(body: Any, param: str) -> None:
    error = refused(body)
    assert error.param == param
    assert error.message


def test_refusals_say_what_clients_look_for() -> None:
    assert (
        "Cannot use both"
        in refused({"input": "x", "conversation": "c", "previous_response_id": "r"}).message
    )
    assert refused({"input": []}).message == "No user message found in 'input'."
    assert "input[0]" in refused({"input": [{"type": "web_search_call"}]}).message


@pytest.mark.parametrize("reference", [{"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"}])
def test_an_input_with_references_is_read_when_they_are_resolved(reference: Any) -> None:
    body = {"input": [reference, RESULT], "instructions": "Be brief."}
    request = parse_responses(json.dumps(body).encode())
    assert find_references(request.input_items) == {0: "msg_1"}
    assert (request.message, request.history, request.messages) == ("", (), ())
    hello = {"type": "message", "role": "user", "status": "completed", "content": []}
    said = {**hello, "id": "msg_1", "content": [{"type": "input_text", "text": "Hi"}]}
    resolved = with_input(request, (said, request.input_items[1]))
    assert [message.role for message in resolved.messages] == ["user", "tool"]
    assert (resolved.message, resolved.instructions) == ("", "Be brief.")
    with pytest.raises(ApiError, match="No user message"):
        with_input(request, ())


values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-5, 5),
        st.floats(allow_nan=False),
        st.text(max_size=5),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["role", "content", "type", "id", "call_id", "output", "summary", "text"]
            ),
            inner,
        ),
    ),
    max_leaves=6,
)
kinds = st.sampled_from(
    ["message", "function_call", "function_call_output", "reasoning", "item_reference"]
)
names = st.sampled_from(
    [
        "input",
        "model",
        "stream",
        "store",
        "tools",
        "conversation",
        "metadata",
        "text",
        "conversation_history",
    ]
)


@given(st.dictionaries(names, values), st.booleans())
def test_any_object_is_read_or_refused(fields: dict[str, Any], is_valid: bool) -> None:
    read_or_refused({**fields, "input": "hello"} if is_valid else fields)


@given(st.lists(st.builds(lambda kind, item: {**item, "type": kind}, kinds, st.dictionaries(
    st.sampled_from(["role", "content", "call_id", "name", "output", "summary", "status"]), values
)), max_size=4))  # fmt: skip
def test_any_input_is_read_or_refused(items: list[Any]) -> None:
    read_or_refused({"input": [*items, "hello"]})


def read_or_refused(body: Any) -> None:
    try:
        request = parse_responses(json.dumps(body).encode())
    except ApiError as error:
        assert error.status == 400
        assert error.message
    else:
        assert request.message or request.messages[-1].role == "tool"


ASKED = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "terminal", "arguments": "{}"}
ANSWER = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}


def test_an_input_that_ends_with_an_answer_to_an_approval_request() -> None:
    request = parsed([ASKED, ANSWER])
    assert request.answers_approval
    assert request.messages == ()
    assert [item["type"] for item in request.input_items] == [
        "mcp_approval_request",
        "mcp_approval_response",
    ]
    assert request.input_items[0]["id"] == "mcpr_1"
    [found] = find_approval_replies(request.input_items)
    assert (found.position, found.request_id, found.is_approved) == (1, "mcpr_1", True)
    assert not parsed("hello").answers_approval


def test_an_answer_that_neither_approves_nor_refuses() -> None:
    error = refused({"input": [{**ANSWER, "approve": "yes"}]})
    assert error.param == "input[0].approve"


@pytest.mark.parametrize(
    ("tool", "wants"),
    [
        ({"type": "mcp", "server_label": "hermes", "require_approval": "always"}, True),
        ({"type": "mcp", "server_label": "other", "require_approval": "always"}, False),
        ({"type": "function", "name": "f", "parameters": {}}, False),
    ],
)
def test_a_client_that_knows_this_server_as_an_mcp_server(
    tool: dict[str, Any], wants: bool
) -> None:
    assert parsed("hello", tools=[tool]).wants_approval_items is wants


def test_a_request_that_continues_something() -> None:
    assert parsed(previous_response_id="resp_1").is_chained
    assert parsed(conversation="c").is_chained
    assert not parsed().is_chained
