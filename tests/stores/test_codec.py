"""Encoding and decoding of messages."""

from __future__ import annotations

import json
import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.core.messages import Message, ToolCall
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.codec import decode_message, encode_json, encode_plain_json
from hermes_trio.stores.sqlite import open_sqlite
from tests.stores.samples import ended_with_messages

text = st.text(
    st.characters(exclude_categories=()), max_size=20
)  # with lone surrogates and controls
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text
values: st.SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
parts = st.lists(st.dictionaries(text, values, max_size=3), max_size=3).map(tuple)
calls = st.lists(st.builds(ToolCall, text, text, text), max_size=3).map(tuple)
messages = st.builds(Message, text, text | parts, calls, text, text, text)


@settings(deadline=None)  # a busy machine is not a failure
@given(messages)
def test_a_message_round_trips(message: Message) -> None:
    body = encode_json(message)
    assert body.isascii()
    assert decode_message(body, 0, "s") == message
    assert decode_message(body.encode(), 0, "s") == message


@settings(deadline=None)
@given(messages)
def test_the_fast_encoder_writes_the_same(message: Message) -> None:
    assert json.loads(encode_plain_json(message)) == json.loads(encode_json(message))
    assert encode_plain_json(message).isascii()


@pytest.mark.parametrize(
    "value",
    [None, [float("nan")], [float("inf")], 2**80, "\ud800", "\u00e4", {"a": [1, 2.5, True, "x"]}],
)
def test_the_fast_encoder_falls_back(value: Any) -> None:
    """To the strict encoder, where the result would differ."""
    assert json.dumps(json.loads(encode_plain_json(value))) == json.dumps(value)


def test_the_fast_encoder_refuses_what_is_not_json() -> None:
    with pytest.raises(StoreError):
        encode_plain_json([object()])


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(messages, max_size=4), min_size=1, max_size=3))
def test_turns_round_trip_through_a_file(said: list[list[Message]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        assert trio.run(_written_and_read, Path(directory, "x.db"), said) == tuple(chain(*said))


async def _written_and_read(path: Path, said: list[list[Message]]) -> tuple[Message, ...]:
    async with open_sqlite(path) as store:
        for number, some in enumerate(said):
            await store.end_run(ended_with_messages(str(number), *some))
    async with open_sqlite(path) as store:
        return await store.load_messages("ann", "s")


def test_a_later_field_is_ignored_and_a_missing_one_has_its_default() -> None:
    assert decode_message('{"role": "user", "content": "x", "new": 1}', 0, "s") == Message(
        "user", "x"
    )


@pytest.mark.parametrize(
    "body",
    ["", "{", "5", "null", "[]", "{}", '{"role": 1, "content": ""}', '{"role": "user"}', b"\xff", "é".encode("utf-16"),
     "[" * 100_000],
)  # fmt: skip
def test_corrupt_json_names_its_place(body: str | bytes) -> None:
    with pytest.raises(StoreError, match="message 7 of session 'here' is damaged"):
        decode_message(body, 7, "session 'here'")


def test_what_is_too_deep_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(StoreError, match="JSON"):
        encode_json(deep)
    assert json.loads(encode_json({"a": 1})) == {"a": 1}
