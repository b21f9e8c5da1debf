"""Items become a transcript; token counts add up."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given

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
    continue_answer,
    join_continued,
    restore_calls,
    transcript,
)
from hermes_trio.core.state import CallState
from tests.support.strategies import scripts
from tests.support.turn_rules import played


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


IMAGE: dict[str, str] = {"type": "image_url"}
QUESTION, CALLED = Message("user", "Count."), ToolCall("c", "t", "{}")
FOUND = Message("tool", "2", tool_call_id="c", name="t")


def test_an_answer_and_its_continuation_are_one_message() -> None:
    start, rest = Message("assistant", "One,", reasoning="Hm. "), Message("assistant", " two.")
    end = Message("assistant", " Three?", (CALLED,), reasoning="So.")
    assert join_continued((QUESTION, start, rest, end, FOUND, rest)) == (
        QUESTION,
        Message("assistant", "One, two. Three?", (CALLED,), reasoning="Hm. So."),
        FOUND,
        rest,
    )
    assert join_continued((start, Message("assistant", (IMAGE,)))) == (
        Message("assistant", ({"type": "text", "text": "One,"}, IMAGE), reasoning="Hm. "),
    )
    assert join_continued(()) == ()


LOOKING = (Message("assistant", "Let me see. ", (CALLED,)), FOUND, Message("assistant", "One,"))
SEEN = Message("assistant", "Let me see. One,\n")
OTHER, OLD = Message("assistant", "First,"), (Message("user", "Hi"), Message("assistant", "Hello"))


@pytest.mark.parametrize(
    ("stored", "sent", "history", "is_new"),
    [
        # What the client shows of the stored answer: the stored one has its tools.
        ((*OLD, QUESTION, *LOOKING), (QUESTION, SEEN), (*OLD, QUESTION, *LOOKING), False),
        # The client has edited the answer.
        ((*OLD, QUESTION, *LOOKING), (QUESTION, OTHER), (*OLD, QUESTION, OTHER), True),
        # The question is new, and the client has begun the answer.
        (OLD, (QUESTION, OTHER), (*OLD, QUESTION, OTHER), True),
        ((), (QUESTION, OTHER), (QUESTION, OTHER), True),
        ((), (OTHER,), (OTHER,), True),
        (OLD, (Message("assistant", (IMAGE,)),), (*OLD, Message("assistant", (IMAGE,))), True),
    ],
)
def test_an_answer_is_continued_where_the_session_has_it(
    stored: tuple[Message, ...],
    sent: tuple[Message, ...],
    history: tuple[Message, ...],
    is_new: bool,
) -> None:
    assert continue_answer(stored, sent) == (history, sent if is_new else ())


MINE, OURS = ToolCall("a", "locate", "{}"), ToolCall("b", "terminal", "{}")
SENT = (
    QUESTION,
    Message("assistant", "See. Here.", (ToolCall("a", "locate", "{ }"),)),
    Message("tool", "Oslo", tool_call_id="a"),
)
DONE = (
    Message("assistant", "See.", (CALLED,)),
    FOUND,
    Message("assistant", "Here.", (OURS, MINE)),
    Message("tool", "ran", tool_call_id="b", name="terminal"),
)
AGAIN = (DONE[0], evolve(FOUND, content="3"), *DONE[2:])


@pytest.mark.parametrize(
    ("turns", "is_restored"),
    [
        ([(QUESTION, *DONE)], True),
        ([(QUESTION, *DONE), (QUESTION, *DONE)], True),  # the same request was sent twice
        ([], False),
        ([OLD, (QUESTION, Message("assistant", "See.", (CALLED,)), FOUND)], False),
        ([(QUESTION, Message("assistant", "Here.", (MINE,)))], False),  # nothing else was done
        ([(QUESTION, *DONE), (QUESTION, *AGAIN)], False),  # one of them may be somebody else's
    ],
)
def test_what_was_done_besides_the_clients_calls_is_put_back(
    turns: list[tuple[Message, ...]], is_restored: bool
) -> None:
    expected = (QUESTION, *DONE, SENT[-1]) if is_restored else SENT
    assert restore_calls(SENT, turns) == expected


def test_total_tokens() -> None:
    assert Usage(1, 2).total_tokens == 3
