"""Nothing that a client sends gives a 500: it is answered, or refused in the envelope, by name."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.core.events import Text
from hermes_trio.schema import replies
from tests.support.asgi import Client, HttpResponse
from tests.support.chat_api import chunks
from tests.support.fakes import CHAT, ScriptedAgentFactory, ask, make_harness

USER = {"role": "user", "content": "Hi"}


def assert_proper(answer: HttpResponse) -> None:
    """An answer or a refusal, in its form."""
    if answer.status == 200:
        if answer.headers["content-type"] == "text/event-stream":
            chunks(answer)
        else:
            msgspec.convert(answer.json, replies.ChatCompletion)
        return
    assert 400 <= answer.status < 500
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert answer.error["message"]
    assert answer.error["type"] == "invalid_request_error"
    msgspec.convert(answer.json, replies.ErrorEnvelope)


# -- tables --


@pytest.mark.parametrize(
    "raw",
    [
        b"", b" ", b"{", b"null", b"true", b"1", b'"text"', b"[]", b"[{}]", b"{}{}", b"{'a': 1}", b"\xff\xfe{}", b"\xef\xbb\xbf{}",
        b'{"messages": "\xff"}', b'{"messages": "\\ud800"}', b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1e999}', b"{\"a\": 01}",
        b'{"a":' * 100_000, b"[" * 100_000, b'{"a": ' + b"[" * 65 + b"]" * 65 + b"}", b'{"a": ' + b"9" * 100 + b"}",
        b'{"a": [' + b"0," * 10_000 + b"0]}", "{}".encode("utf-16"), b"\0", b'{"a": "\0"}', b'{"a": 1,}',
    ],
)  # fmt: skip
async def test_what_is_not_the_json_we_take(raw: bytes) -> None:
    harness = make_harness()
    answer = await harness.client.send_raw(CHAT, raw)
    assert_proper(answer)
    assert answer.status == 400
    assert answer.error["code"] == "invalid_json"
    assert answer.error["message"].startswith("Invalid JSON")
    assert harness.is_idle


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": 1}, "messages"),
    ({"messages": "Hi"}, "messages"),
    ({"messages": {}}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "system", "content": "Hi"}]}, "messages"),
    ({"messages": [{"role": "user", "content": " \n"}]}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages"),
    ({"messages": [{"role": "user", "content": []}]}, "messages"),
    ({"messages": [USER, 1]}, "messages[1]"),
    ({"messages": [USER, []]}, "messages[1]"),
    ({"messages": [{}]}, "messages[0].role"),
    ({"messages": [{"role": 1, "content": "Hi"}]}, "messages[0].role"),
    ({"messages": [USER, {"role": "wizard", "content": "Hi"}]}, "messages[1].role"),
    ({"messages": [{"role": "user", "content": {"text": "Hi"}}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "file"}]}]}, "messages[0].content"),
    (
        {"messages": [USER, {"role": "user", "content": [{"type": "image_url"}]}]},
        "messages[1].content",
    ),
    ({"messages": [{"role": "user", "content": ["x"] * 1_001}]}, "messages[0].content"),
    ({"messages": [{**USER, "name": 1}]}, "messages[0].name"),
    ({"messages": [{**USER, "tool_calls": [{}]}]}, "messages[0].tool_calls[0].id"),
    ({"messages": [{**USER, "tool_call_id": 1}]}, "messages[0].tool_call_id"),
    ({**ask(), "model": 1}, "model"),
    ({**ask(), "model": ["x"]}, "model"),
    ({**ask(), "stream_options": 1}, "stream_options"),
    ({**ask(), "stream_options": {"include_usage": "x"}}, "stream_options.include_usage"),
    ({**ask(), "temperature": "hot"}, "temperature"),
    ({**ask(), "top_p": []}, "top_p"),
    ({**ask(), "n": 2}, "n"),
    ({**ask(), "n": 0}, "n"),
    ({**ask(), "n": True}, "n"),
    ({**ask(), "max_tokens": 0}, "max_tokens"),
    ({**ask(), "max_tokens": 1.5}, "max_tokens"),
    ({**ask(), "max_completion_tokens": -1}, "max_completion_tokens"),
    ({**ask(), "stop": {}}, "stop"),
    ({**ask(), "stop": ["a", 1]}, "stop[1]"),
    ({**ask(), "seed": "x"}, "seed"),
    ({**ask(), "tools": {}}, "tools"),
    ({**ask(), "tools": ["x"]}, "tools[0]"),
    ({**ask(), "tool_choice": 1}, "tool_choice"),
    ({**ask(), "parallel_tool_calls": "x"}, "parallel_tool_calls"),
    ({**ask(), "response_format": "json"}, "response_format"),
    ({**ask(), "metadata": []}, "metadata"),
    ({**ask(), "user": 1}, "user"),
    ({**ask(), "reasoning_effort": 1}, "reasoning_effort"),
]


@pytest.mark.parametrize(
    ("body", "param"), WRONG, ids=[f"{n}-{param}" for n, (_, param) in enumerate(WRONG)]
)
async def test_wrong_types_are_named(body: dict[str, Any], param: str) -> None:
    harness = make_harness()
    answer = await harness.client.send(CHAT, body)
    assert_proper(answer)
    assert (answer.status, answer.error["param"]) == (400, param)
    assert harness.agents.turns == []
    assert harness.is_idle


@pytest.mark.parametrize(
    "more",
    [
        {"unknown": {"a": [1]}},
        {"stream": {}},
        {"stream": None},
        {"n": 1},
        {"stop": "x"},
        {"logprobs": True},
        {"model": None},
    ],
)
async def test_what_is_not_ours_to_judge_passes(more: dict[str, Any]) -> None:
    answer = await make_harness().client.send(CHAT, ask(**more))
    assert_proper(answer)
    assert answer.status == 200


async def test_a_secret_in_a_message_of_ours_is_masked() -> None:
    part = {"type": "sk-proj-0123456789abcdef"}
    answer = await make_harness().client.send(CHAT, ask([part]))
    assert answer.status == 400
    assert b"0123456789abcdef" not in answer.body


# -- properties --

# Enough to find what there is, few enough to be run always; `nox -s robustness` may ask for more.
SEARCH = settings(max_examples=15, deadline=None)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=12,
)
RICH: dict[str, Any] = {
    "model": "m",
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 1,
    "tools": [{"type": "function", "function": {"name": "t", "parameters": {}}}],
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}, "Hi"],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "function": {"name": "t", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "user", "content": "Hi"},
    ],
}


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container with every key or index in it."""
    if isinstance(value, dict):
        return [place for key in value for place in [(value, key), *places(value[key])]]
    if isinstance(value, list):
        return [place for n, item in enumerate(value) for place in [(value, n), *places(item)]]
    return []


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A good request with a few values replaced or removed."""
    body = copy.deepcopy(RICH)
    for _ in range(draw(st.integers(1, 3))):
        container, key = draw(st.sampled_from(places(body) or [({"": 0}, "")]))
        if draw(st.booleans()):
            container[key] = draw(JSON)
        else:
            del container[key]
    return body


@st.composite
def corrupted(draw: st.DrawFn) -> bytes:
    """A good request with some bytes replaced."""
    raw = bytearray(json.dumps(RICH).encode())
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(raw)))
        raw[start : start + draw(st.integers(0, 5))] = draw(st.binary(max_size=5))
    return bytes(raw)


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


BODY = JSON.map(encoded) | mutated().map(encoded) | corrupted() | st.binary(max_size=200)


async def send_all(bodies: Sequence[bytes], client: Client) -> None:
    for body in bodies:
        assert_proper(
            await client.send_raw(CHAT, *(body[n : n + 100] for n in range(0, len(body) or 1, 100)))
        )


async def in_rig(bodies: Sequence[bytes]) -> None:
    harness = make_harness(ScriptedAgentFactory([Text("Hi")], is_async=True))
    await send_all(bodies, harness.client)
    assert harness.is_idle


@SEARCH
@given(st.lists(BODY, min_size=10, max_size=30))
def test_any_body_is_answered_or_refused(bodies: list[bytes]) -> None:
    trio.run(in_rig, bodies)


NAMES = [
    "X-Hermes-Session-Id", "X-Hermes-Session-Key", "X-Request-Id", "Origin", "Host", "Content-Type", "Authorization",
    "Idempotency-Key", "Access-Control-Request-Headers", "Accept", "Cookie", "Content-Length", "Expect", "X-Openwebui-Chat-Id",
]  # fmt: skip
HEADERS = st.dictionaries(
    st.sampled_from(NAMES), st.text(st.characters(max_codepoint=255), max_size=30), max_size=4
)
PATHS = st.sampled_from(["/health", "/v1/models", "/v1/models/x", CHAT, "/metrics"]) | st.text(
    max_size=20
)
METHODS = st.sampled_from(["GET", "POST", "HEAD", "OPTIONS", "TRACE", "X"])


async def knock(requests: Sequence[tuple[str, str, dict[str, str]]]) -> None:
    harness = make_harness()
    for method, path, headers in requests:
        answer = await harness.client.get(path, headers, method)
        assert answer.status < 500
        if answer.status >= 400:
            assert set(answer.error) == {"message", "type", "param", "code"}


@SEARCH
@given(st.lists(st.tuples(METHODS, PATHS, HEADERS), min_size=10, max_size=30))
def test_any_request_is_answered_or_refused(
    requests: list[tuple[str, str, dict[str, str]]],
) -> None:
    trio.run(partial(knock, requests))
