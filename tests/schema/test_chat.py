"""Chat requests: what is read out of a body, and how a wrong one is refused."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.core.errors import ApiError
from hermes_trio.core.messages import Message, ToolCall
from hermes_trio.schema.chat import ChatRequest, parse_chat

USER = {"role": "user", "content": "hello"}


def parsed(*messages: Any, **fields: Any) -> ChatRequest:
    return parse_chat(json.dumps({"messages": list(messages), **fields}).encode())


def refused(body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_chat(json.dumps(body).encode())
    assert caught.value.status == 400
    return caught.value


def test_the_last_message_is_the_question_and_the_rest_is_history() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    request = parsed(
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "result", "tool_call_id": "c1", "name": "t"},
        {"role": "user", "content": "two"},
    )
    assert request.message == "two"
    assert request.history == (
        Message("user", "one"),
        Message("assistant", "", (ToolCall("c1", "t", "{}"),)),
        Message("tool", "result", tool_call_id="c1", name="t"),
    )


def test_results_of_the_clients_tools_are_no_question() -> None:
    results = [{"role": "tool", "tool_call_id": name, "content": name} for name in "ab"]
    chat = parsed(USER, *results)
    assert chat.message == ""
    assert [message.role for message in chat.history] == ["user", "tool", "tool"]
    assert [message.tool_call_id for message in chat.messages] == ["a", "b"]


def test_the_start_of_an_answer_is_no_question() -> None:
    start = {"role": "assistant", "content": "One, two,"}
    chat = parsed({"role": "user", "content": "Hi"}, start, USER, start)
    assert (chat.message, chat.is_continuation) == ("", True)
    assert chat.messages == (Message("user", "hello"), Message("assistant", "One, two,"))
    assert chat.history[-2:] == chat.messages
    assert len(chat.history) == 4
    alone = parsed(start)
    assert alone.messages == alone.history == (Message("assistant", "One, two,"),)
    assert not parsed(start, USER).is_continuation


def test_calls_without_results_cannot_be_continued() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    said = {"role": "assistant", "content": "Let me see.", "tool_calls": [call]}
    error = refused({"messages": [USER, said]})
    assert (error.param, error.message) == (
        "messages",
        "The last message in 'messages' calls tools: send their results after it.",
    )


def test_system_and_developer_messages_are_the_instructions() -> None:
    request = parsed(
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": [{"type": "text", "text": "be kind"}]},
        {"role": "system", "content": ""},
        USER,
    )
    assert request.instructions == "be brief\nbe kind"
    assert request.history == ()


def test_defaults() -> None:
    request = parsed(USER)
    assert (request.model, request.stream, request.include_usage, request.options) == (
        "",
        False,
        False,
        {},
    )


def test_fields_are_read() -> None:
    request = parsed(
        USER,
        model="m",
        stream="yes",
        stream_options={"include_usage": True},
        temperature=1,
        max_tokens=10,
        max_completion_tokens=20,
        n=1,
        unknown={"is": "ignored"},
    )
    assert (request.model, request.stream, request.include_usage) == ("m", True, True)
    assert request.options == {"temperature": 1.0, "max_tokens": 20}


def test_the_session_id_follows_the_formula() -> None:
    system = {"role": "system", "content": "be brief"}
    expected = "api-" + sha256(b"be brief\nhello").hexdigest()[:16]
    first = parsed(system, USER)
    second = parsed(
        system, USER, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "more"}
    )
    assert first.derived_session_id == second.derived_session_id == expected
    assert parsed(USER).derived_session_id != expected


def test_a_conversation_that_begins_with_an_image_has_a_session_too() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    request = parsed({"role": "user", "content": [image]})
    assert request.derived_session_id.startswith("api-")
    assert request.message == (image,)


def test_a_session_needs_no_user_message() -> None:
    assert (
        parsed({"role": "assistant", "content": "go on"}).derived_session_id
        == "api-" + sha256(b"\n").hexdigest()[:16]
    )


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": ["x"]}, "messages[0]"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": 5, "content": "x"}]}, "messages[0].role"),
        ({"messages": [USER, {"role": "wizard", "content": "x"}]}, "messages[1].role"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": "  "}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": "x", "tool_calls": [{}]}]},
            "messages[0].tool_calls[0].id",
        ),
        ({"messages": [USER], "model": 5}, "model"),
        ({"messages": [USER], "n": 2}, "n"),
        ({"messages": [USER], "max_tokens": 0}, "max_tokens"),
        ({"messages": [USER], "max_completion_tokens": -1}, "max_completion_tokens"),
        ({"messages": [USER], "temperature": "hot"}, "temperature"),
        ({"messages": [USER], "stream_options": []}, "stream_options"),
        (
            {"messages": [USER], "stream_options": {"include_usage": "x"}},
            "stream_options.include_usage",
        ),
        ({"messages": [USER], "tools": [1]}, "tools[0]"),
    ],
)
def test_a_wrong_body_is_refused_by_the_name_of_its_parameter(body: Any, param: str) -> None:
    error = refused(body)
    assert error.param == param
    assert error.message


def test_a_flood_of_messages_is_refused() -> None:
    assert "10000" in refused({"messages": [USER] * 10_001}).message.replace(",", "")


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
        st.dictionaries(st.sampled_from(["role", "content", "type", "id"]), inner),
    ),
    max_leaves=6,
)
names = st.sampled_from(
    ["messages", "model", "stream", "stream_options", "tools", "stop", "n", "max_tokens", "user"]
)


@given(st.dictionaries(names, values), st.booleans())
def test_any_object_is_read_or_refused(fields: dict[str, Any], is_valid: bool) -> None:
    body = {**fields, "messages": [USER]} if is_valid else fields
    try:
        request = parse_chat(json.dumps(body).encode())
    except ApiError as error:
        assert error.status == 400
        assert error.message
    else:
        assert request.message
