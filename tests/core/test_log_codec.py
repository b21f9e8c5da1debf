"""The stored form of a log: everything round-trips, and damage is detected."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from attrs import asdict
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.core.changes import (
    ApprovalRequested,
    ApprovalResolved,
    CallEnded,
    CallStarted,
    ClientToolCalled,
    Ended,
    ReasoningAdded,
    TextAdded,
    ToolOutputAdded,
)
from hermes_trio.core.events import AnsweredBy, Choice, Event
from hermes_trio.core.log_codec import (
    DecodeError,
    as_dict,
    compress,
    decode_changes,
    decode_items,
    decode_outcome,
    encode_changes,
    encode_items,
    field_names,
    is_value,
)
from hermes_trio.core.messages import (
    CallItem,
    ClientCallItem,
    Message,
    MessageItem,
    ReasoningItem,
    Usage,
)
from hermes_trio.core.outcome import Failure, Outcome, Reason, Status
from hermes_trio.core.records import Stamp
from hermes_trio.core.state import CallState
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


@given(st.text(st.characters(codec="ascii")))
def test_compression_round_trip(text: str) -> None:
    assert zlib.decompress(compress(text)).decode("ascii") == text


@pytest.mark.parametrize("length", [0, 1, 511, 512, 513, 4095, 4096, 4097, 1_000_000])
def test_compression_of_any_length(length: int) -> None:
    text = "".join(chr(32 + number * number % 95) for number in range(length))
    assert zlib.decompress(compress(text)).decode("ascii") == text


@pytest.mark.parametrize("text", ["some text", "text" * 500])
def test_damage_is_detected(text: str) -> None:
    compressed = bytearray(compress(text))
    compressed[-1] ^= 1
    with pytest.raises(zlib.error):
        zlib.decompress(compressed)


@pytest.mark.parametrize("value", [Usage(1, 2), Stamp("run_1", 1.5, "m"), Message("user", "Hi")])
def test_fields_as_attrs_tells_them(value: Any) -> None:
    assert is_value(value.__class__)
    assert as_dict(value) == asdict(value, recurse=False)
    assert field_names(value.__class__) == tuple(as_dict(value))


def test_what_is_no_value() -> None:
    assert not is_value(dict)


# As earlier versions wrote them. Databases hold such rows: they must stay readable, and be written
# in the same way.
STORED_CHANGES = """[
["t",0,"Hello"],
["r",1,"hm \\u00e9"],
["s",2,"c1","terminal",{"command":"ls"},0.5],
["o",2,"c1","out"],
["q","q1","c1","rm","d",["p","q"],true,60.0,1.0],
["a","q1","c1","session","client",1.5],
["e",2,"c1","terminal","completed","res",false,1.5],
["c",3,"k","f","{}"],
["z",{"status":"incomplete","reason":"timeout","failure":{"message":"Too long.","kind":"timeout"},
"usage":{"input_tokens":1,"output_tokens":2,"cached_tokens":3,"cache_write_tokens":4,"reasoning_tokens":5},
"raised":false,"session_id":""},9.0]
]""".replace("\n", "")
STORED_ITEMS = """[
["m","Hello"],
["r","hm \\u00e9"],
["c","c1","terminal",{"command":"ls"},"completed","res",false,1.5,3,0],
["c","c2","terminal",{},"cancelled","",true,1.5,3,1,"q1",true],
["k","k","f","{}"]
]""".replace("\n", "")


def test_the_stored_form_of_changes_is_stable() -> None:
    outcome = Outcome(
        Status.INCOMPLETE, Reason.TIMEOUT, Failure("Too long.", "timeout"), Usage(1, 2, 3, 4, 5)
    )
    changes = (
        TextAdded(0, "Hello"),
        ReasoningAdded(1, "hm \N{LATIN SMALL LETTER E WITH ACUTE}"),
        CallStarted(2, "c1", "terminal", {"command": "ls"}, 0.5),
        ToolOutputAdded(2, "c1", "out"),
        ApprovalRequested("q1", "c1", "rm", "d", ("p", "q"), True, 60.0, 1.0),
        ApprovalResolved("q1", "c1", Choice.SESSION, AnsweredBy.CLIENT, 1.5),
        CallEnded(2, "c1", "terminal", CallState.COMPLETED, "res", False, 1.5),
        ClientToolCalled(3, "k", "f", "{}"),
        Ended(outcome, 9.0),
    )
    assert decode_changes(compress(STORED_CHANGES)) == changes
    assert zlib.decompress(encode_changes(changes)).decode() == STORED_CHANGES


def test_the_stored_form_of_items_is_stable() -> None:
    items = (
        MessageItem("Hello"),
        ReasoningItem("hm \N{LATIN SMALL LETTER E WITH ACUTE}"),
        CallItem("c1", "terminal", {"command": "ls"}, CallState.COMPLETED, "res", False, 1.5, 3, 0),
        CallItem("c2", "terminal", {}, CallState.CANCELLED, "", True, 1.5, 3, 1, "q1", True),
        ClientCallItem("k", "f", "{}"),
    )
    assert decode_items(compress(STORED_ITEMS)) == items
    assert zlib.decompress(encode_items(items)).decode() == STORED_ITEMS
