"""Nothing that a client sends to the Responses and Conversations routes gives a 500."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.core.events import Text
from hermes_trio.schema import replies
from tests.support.asgi import HttpResponse
from tests.support.fakes import AppHarness, ScriptedAgentFactory
from tests.support.responses_api import CONVERSATIONS, RESPONSES, idle_harness
from tests.support.responses_stream_rules import Reader
from tests.web.test_bad_input import JSON, encoded, places

SEARCH = settings(max_examples=8, deadline=None)

ITEMS: list[Any] = [
    "First",
    {"role": "developer", "content": [{"type": "input_text", "text": "Obey."}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
    {
        "type": "function_call",
        "call_id": "c",
        "name": "t",
        "arguments": "{}",
        "status": "completed",
    },
    {
        "type": "function_call_output",
        "call_id": "c",
        "output": [{"type": "input_text", "text": "1"}],
    },
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_image", "image_url": "https://x.test/a.png"},
            {"type": "input_text", "text": "Hi"},
        ],
    },
]
RESPONSE: dict[str, Any] = {
    "model": "m",
    "input": ITEMS,
    "instructions": "Be brief.",
    "conversation": {"id": "c"},
    "conversation_history": [{"role": "user", "content": "Before"}],
    "metadata": {"a": "b"},
    "reasoning": {"effort": "low"},
    "text": {"format": {"type": "text"}},
    "tools": [{"type": "function", "name": "t", "parameters": {}}],
    "tool_choice": {"type": "function", "name": "t"},
    "include": ["x"],
    "truncation": "auto",
    "temperature": 1,
    "max_output_tokens": 5,
    "stream": True,
    "store": True,
}
CONVERSATION: dict[str, Any] = {"items": ITEMS, "metadata": {"a": "b"}}


def assert_proper(answer: HttpResponse) -> None:
    """An answer or a refusal, in its form."""
    if answer.status == 200:
        return
    assert 400 <= answer.status < 500, answer.body
    msgspec.convert(answer.json, replies.ErrorEnvelope)
    assert answer.error["message"]


def assert_response(answer: HttpResponse) -> None:
    """The same. What a client said wrong is repeated as it was, so the SDK's types need not hold here."""
    assert_proper(answer)
    if answer.status == 200 and answer.headers["content-type"] == "text/event-stream":
        Reader().read([frame.json for frame in answer.frames if not frame.is_done])
    elif answer.status == 200:
        msgspec.convert(answer.json, replies.ResponseReply)


@st.composite
def mutated(draw: st.DrawFn, good: Any) -> Any:
    """A good request with a few values replaced or removed."""
    body = copy.deepcopy(good)
    for _ in range(draw(st.integers(1, 3))):
        container, key = draw(st.sampled_from(places(body) or [({"": 0}, "")]))
        if draw(st.booleans()):
            container[key] = draw(JSON)
        else:
            del container[key]
    return body


@st.composite
def corrupted(draw: st.DrawFn, good: Any) -> bytes:
    """A good request with some bytes replaced."""
    raw = bytearray(json.dumps(good).encode())
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(raw)))
        raw[start : start + draw(st.integers(0, 5))] = draw(st.binary(max_size=5))
    return bytes(raw)


def bodies(good: Any) -> st.SearchStrategy[list[bytes]]:
    body = (
        mutated(good).map(encoded) | corrupted(good) | JSON.map(encoded) | st.binary(max_size=100)
    )
    return st.lists(body, min_size=5, max_size=20)


def quick() -> ScriptedAgentFactory:
    return ScriptedAgentFactory([Text("Hi")], is_async=True)


@SEARCH
@given(bodies(RESPONSE))
def test_any_body_of_a_response(raws: list[bytes]) -> None:
    async def send_all() -> None:
        async with idle_harness(quick(), max_runs=0) as harness:
            for raw in raws:
                assert_response(await harness.client.send_raw(RESPONSES, raw))

    trio.run(send_all)


@SEARCH
@given(bodies(CONVERSATION))
def test_any_body_of_a_conversation(raws: list[bytes]) -> None:
    async def send_all() -> None:
        async with idle_harness(quick()) as harness:
            made = (await harness.client.send(CONVERSATIONS, {})).json["id"]
            for raw in raws:
                for path in ("", f"/{made}", f"/{made}/items"):
                    assert_proper(await harness.client.send_raw(f"{CONVERSATIONS}{path}", raw))
            answer = await harness.client.send(RESPONSES, {"input": "Go", "conversation": made})
            assert_response(answer)  # whatever was put in can be read

    trio.run(send_all)


# -- paths, queries and headers --

WORDS = st.text(max_size=20) | st.sampled_from(
    ["resp", "conv_x", "..", "-1", "9" * 400, "true", "²", "\0"]
)
QUERIES = st.dictionaries(
    st.sampled_from(["stream", "starting_after", "limit", "order", "after", "include[]"]),
    WORDS,
    max_size=3,
)
PLACES = st.sampled_from(
    [
        ("GET", f"{RESPONSES}/%"),
        ("GET", f"{RESPONSES}/%/input_items"),
        ("POST", f"{RESPONSES}/%/cancel"),
        ("DELETE", f"{RESPONSES}/%"),
        ("GET", f"{CONVERSATIONS}/%/items"),
        ("GET", f"{CONVERSATIONS}/%/items/%"),
        ("DELETE", f"{CONVERSATIONS}/%/items/%"),
    ]
)
HEADERS = st.dictionaries(
    st.sampled_from(["X-Hermes-On-Disconnect", "Idempotency-Key", "X-Hermes-Session-Key"]),
    st.text(st.characters(max_codepoint=255), max_size=20),
    max_size=2,
)
Knock = tuple[tuple[str, str], str, dict[str, str], dict[str, str]]


async def knock(harness: AppHarness, known: Sequence[str], request: Knock) -> None:
    (method, pattern), name, query, headers = request
    for text in (name, *known):
        words = "&".join(f"{key}={quote(value)}" for key, value in query.items())
        path = pattern.replace("%", quote(text, safe=""))
        assert_proper(await harness.client.get(f"{path}?{words}", headers, method))
    assert_proper(await harness.client.send(RESPONSES, {"input": "Go"}, headers))


@SEARCH
@given(st.lists(st.tuples(PLACES, WORDS, QUERIES, HEADERS), min_size=5, max_size=15))
def test_any_path_query_and_header(requests: list[Knock]) -> None:
    async def send_all() -> None:
        async with idle_harness(quick(), max_runs=0) as harness:
            told = (await harness.client.send(RESPONSES, {"input": "Go", "conversation": "c"})).json
            for request in requests:
                await knock(harness, (told["id"], "c"), request)

    trio.run(send_all)
