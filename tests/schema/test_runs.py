"""Requests for runs: what is read out of a body, and how a wrong one is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.core.errors import ApiError
from hermes_trio.core.events import Choice
from hermes_trio.core.messages import Message
from hermes_trio.schema.runs import ApprovalAnswer, RunRequest, parse_approval, parse_run

RESULT = {"type": "function_call_output", "call_id": "c1", "output": "r"}


def parsed(said: Any = "hello", **fields: Any) -> RunRequest:
    return parse_run(json.dumps({"input": said, **fields}).encode())


def refused(body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_run(json.dumps(body).encode())
    assert caught.value.status == 400
    return caught.value


def test_a_text_is_the_question() -> None:
    request = parsed()
    assert (
        request.responses_request.message,
        request.responses_request.history,
        request.session_id,
    ) == (
        "hello",
        (),
        "",
    )
    assert request.responses_request.store
    assert (request.responses_request.stream, request.responses_request.background) == (
        False,
        False,
    )


def test_the_last_message_is_the_question_and_the_rest_is_history() -> None:
    request = parsed(
        [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "1"},
            {"content": "two"},
        ]
    )
    assert request.responses_request.message == "two"
    assert request.responses_request.history == (Message("user", "one"), Message("assistant", "1"))


def test_all_fields() -> None:
    request = parsed(
        instructions="be brief",
        previous_response_id="run_1",
        conversation_history=[{"role": "user", "content": "before"}],
        session_id=" s-1 ",
        model="m",
        metadata={"a": "b"},
    )
    asked = request.responses_request
    assert request.session_id == "s-1"
    assert (asked.instructions, asked.previous_response_id, asked.model) == (
        "be brief",
        "run_1",
        "m",
    )
    assert asked.explicit_history == (Message("user", "before"),)
    assert asked.metadata == asked.echo["metadata"] == {"a": "b"}


def test_fields_of_other_apis_are_ignored() -> None:
    request = parsed(store=False, stream=True, background=True, conversation="c", temperature="hot")
    assert (
        request.responses_request.store,
        request.responses_request.stream,
        request.responses_request.conversation,
    ) == (True, False, "")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": " "}, "input"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": {}}, "input"),
        ({"input": ["a", 3]}, "input[1]"),
        ({"input": [{"role": "king", "content": "a"}]}, "input[0].role"),
        ({"input": [{"content": [{"type": "input_file"}]}]}, "input[0].content"),
        ({"input": ["a", {"role": "assistant", "content": "b"}]}, "input"),
        ({"input": ["a", RESULT]}, "input"),
        ({"input": "a", "instructions": 3}, "instructions"),
        ({"input": "a", "model": []}, "model"),
        ({"input": "a", "previous_response_id": {}}, "previous_response_id"),
        ({"input": "a", "previous_response_id": "x" * 300}, "previous_response_id"),
        ({"input": "a", "conversation_history": "x"}, "conversation_history"),
        (
            {"input": "a", "conversation_history": [{"role": "user"}]},
            "conversation_history[0].content",
        ),
        (
            {"input": "a", "conversation_history": [{"role": "king", "content": "x"}]},
            "conversation_history[0].role",
        ),
        ({"input": "a", "session_id": 3}, "session_id"),
        ({"input": "a", "session_id": "../x"}, "session_id"),
        ({"input": "a", "session_id": "a\nb"}, "session_id"),
        ({"input": "a", "session_id": "x" * 257}, "session_id"),
        ({"input": "a", "metadata": "x"}, "metadata"),
        ({"input": "a", "metadata": {"a": 3}}, "metadata.a"),
    ],
)
def test_a_wrong_field_is_named(fields: Any, param: str) -> None:
    assert refused(fields).param == param


def test_a_bad_session_has_its_own_code() -> None:
    assert refused({"input": "a", "session_id": "a/b"}).code == "invalid_session_id"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_nothing_but_a_refusal_comes_of_anything(value: Any) -> None:
    for name in ("input", "session_id", "conversation_history", "metadata"):
        try:
            parse_run(json.dumps({"input": "a", name: value}).encode("utf-8"))
        except ApiError as error:
            assert error.status == 400


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"choice": "deny"}, ApprovalAnswer(Choice.DENY, "", everything=False)),
        (
            {"choice": "Always", "approval_id": "q"},
            ApprovalAnswer(Choice.ALWAYS, "q", everything=False),
        ),
        ({"choice": "allow", "all": True}, ApprovalAnswer(Choice.ONCE, "", everything=True)),
        (
            {"choice": "session", "resolve_all": "yes"},
            ApprovalAnswer(Choice.SESSION, "", everything=True),
        ),
    ],
)
def test_answers(body: dict[str, Any], answer: ApprovalAnswer) -> None:
    assert parse_approval(json.dumps(body).encode()) == answer


@pytest.mark.parametrize("choice", ["", "perhaps", 1, None])
def test_no_answers(choice: object) -> None:
    with pytest.raises(ApiError) as refused:
        parse_approval(json.dumps({"choice": choice}).encode())
    assert (refused.value.status, refused.value.param) == (400, "choice")


def test_references_are_resolved_before_the_question_is_looked_for() -> None:
    request = parsed([{"type": "item_reference", "id": "msg_1"}]).responses_request
    assert request.messages == ()
