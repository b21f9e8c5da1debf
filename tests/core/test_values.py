"""The small pure helpers: plain copies, transcripts, errors, frames."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.core.dialects.wire import data_frame, encode, named_frame
from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.events import Event
from hermes_trio.core.messages import (
    CallItem,
    ClientCallItem,
    Item,
    Message,
    MessageItem,
    ReasoningItem,
    ToolCall,
    Usage,
    transcript,
)
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.records import RunHeader, Stamp
from hermes_trio.core.sessions import build_preview
from hermes_trio.core.shorten import safe_str, to_jsonable
from hermes_trio.core.state import CallState
from tests.support.strategies import scripts
from tests.support.turn_rules import played


class Mute:
    """Cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


odd = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.just(Mute())),
    lambda inner: st.one_of(
        st.lists(inner), st.tuples(inner), st.dictionaries(st.one_of(st.integers(), st.text()), inner)
    ),
    max_leaves=10,
)


@given(odd)
def test_a_plain_copy_is_json(value: object) -> None:
    json.dumps(to_jsonable(value), allow_nan=False)


def test_a_plain_copy_cannot_be_changed_from_outside() -> None:
    original = {"list": [1, {"a": {2}}]}
    copy = to_jsonable(original)
    original["list"].append(3)
    assert copy == {"list": [1, {"a": [2]}]}


def test_what_is_too_deep_or_odd_becomes_text() -> None:
    assert to_jsonable(nested(100)) != nested(100)
    assert to_jsonable(float("nan")) == "nan"
    assert to_jsonable({"n": 16**2000}) == {"n": "0x1" + "0" * 2000}
    assert safe_str(Mute()) == "<Mute>"


def test_the_transcript_puts_each_call_before_its_result() -> None:
    items: tuple[Item, ...] = (
        ReasoningItem("hm"),
        MessageItem("let me look"),
        CallItem("c1", "terminal", {"command": "ls"}, CallState.COMPLETED, "a b", False, 0.1),
        CallItem("c2", "terminal", {}, CallState.CANCELLED, "half", True, 0.1),
        CallItem("c3", "terminal", {}, CallState.CANCELLED, "", True, 0.1),
        MessageItem("there it is"),
    )
    asked = (
        ToolCall("c1", "terminal", '{"command": "ls"}'),
        ToolCall("c2", "terminal", "{}"),
        ToolCall("c3", "terminal", "{}"),
    )
    assert transcript(items) == (
        Message("assistant", "let me look", tool_calls=asked, reasoning="hm"),
        Message("tool", "a b", tool_call_id="c1", name="terminal"),
        Message("tool", "half\n[cancelled before it ended]", tool_call_id="c2", name="terminal"),
        Message("tool", "[cancelled before it ended]", tool_call_id="c3", name="terminal"),
        Message("assistant", "there it is"),
    )


@given(scripts)
def test_a_transcript_is_what_was_said(script: list[Event]) -> None:
    turn, _ = played(script)
    messages = transcript(turn.items)
    said = "".join(str(message.content) for message in messages if message.role == "assistant")
    asked = [call.call_id for message in messages for call in message.tool_calls]
    answered = [message.tool_call_id for message in messages if message.role == "tool"]
    handed_over = {item.call_id for item in turn.items if isinstance(item, ClientCallItem)}
    assert said == turn.text
    assert [call_id for call_id in asked if call_id not in handed_over] == answered


def test_an_empty_turn_has_no_messages() -> None:
    turn, _ = played([])
    assert transcript(turn.items) == ()


def test_the_envelope_has_all_four_fields() -> None:
    error = bad_request("wrong", "n", "bad_n")
    assert error.envelope() == {
        "error": {"message": "wrong", "type": "invalid_request_error", "param": "n", "code": "bad_n"}
    }
    more = ApiError(502, "gone", extra={"hermes": {"failed": True}})
    assert more.envelope()["error"]["hermes"] == {"failed": True}


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (Reason.STOP_REQUESTED, Status.CANCELLED),
        (Reason.SERVER_ERROR, Status.FAILED),
        (Reason.TIMEOUT, Status.INCOMPLETE),
        (Reason.CLIENT_DISCONNECTED, Status.INCOMPLETE),
    ],
)
def test_who_cuts_decides_the_status(reason: Reason, status: Status) -> None:
    assert Outcome.from_cancellation(reason).status is status


def test_frames_are_one_piece_of_ascii() -> None:
    assert data_frame(encode({"a": "ü"})) == b'data: {"a": "\\u00fc"}\n\n'
    assert named_frame("x", "{}") == b"event: x\ndata: {}\n\n"


def test_small_sums() -> None:
    assert Usage(1, 2).total_tokens == 3
    stamp = Stamp("r", 12.9, "m")
    assert stamp.created == 12
    assert RunHeader("ann", stamp, "chat", "s", ()).run_id == "r"


def test_the_preview_of_a_message_with_an_image_is_its_text() -> None:
    parts = ({"type": "image_url"}, {"type": "text", "text": "Look\nhere"})
    assert build_preview([Message("assistant", "no"), Message("user", parts)]) == "Look here"
