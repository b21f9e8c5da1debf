"""The written form of a log: everything comes back, and damage is noticed."""

from __future__ import annotations

import json
import zlib

import pytest
from attrs import asdict
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.core.events import Event
from hermes_trio.core.log_codec import (
    DecodeError,
    decode_changes,
    decode_items,
    decode_outcome,
    encode_changes,
    encode_items,
)
from hermes_trio.core.turn import Turn
from tests.support.strategies import last_words, scripts
from tests.support.turn_rules import feed


@given(scripts, last_words)
def test_what_is_written_comes_back(script: list[Event], last: Event) -> None:
    turn = Turn()
    changes = tuple(feed(turn, [*script, last]))
    assert decode_changes(encode_changes(changes)) == changes
    assert decode_items(encode_items(turn.items)) == turn.items
    assert decode_outcome(json.dumps(asdict(turn.outcome))) == turn.outcome


@given(scripts)
def test_what_is_open_can_be_written_too(script: list[Event]) -> None:
    turn = Turn()
    changes = tuple(feed(turn, script))
    assert decode_changes(encode_changes(changes)) == changes
    assert decode_items(encode_items(turn.items)) == turn.items


@given(st.binary())
def test_other_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_changes(body)
    with pytest.raises(DecodeError):
        decode_items(body)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"status": "no such"}'])
def test_other_outcomes_are_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        decode_outcome(text)


@pytest.mark.parametrize(
    "text", [b'[["t"]]', b'[["q", 1]]', b"[[]]", b"{}1", b'[["c", 1, 2, 3]]', b'["t"]', b"5"]
)
def test_other_rows_are_refused(text: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_changes(zlib.compress(text))
