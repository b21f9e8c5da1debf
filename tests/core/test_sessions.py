"""Sessions as values."""

from __future__ import annotations

import pytest

from hermes_trio.core.messages import Message, ToolCall
from hermes_trio.core.sessions import (
    build_preview,
    excerpt,
    is_derived,
    matches,
    restore_tool_calls,
    search_words,
)


def test_the_preview_of_a_message_with_an_image_is_its_text() -> None:
    parts = ({"type": "image_url"}, {"type": "text", "text": "Look\nhere"})
    assert build_preview([Message("assistant", "no"), Message("user", parts)]) == "Look here"


@pytest.mark.parametrize(
    ("session_id", "expected"),
    [
        ("api-0123456789abcdef", True),
        ("api-0123456789abcde", False),
        ("api-0123456789abcdef0", False),
        ("api-gateway-of-our-own", False),
        ("openwebui-0123456789abcdef", False),
    ],
)
def test_a_derived_session_is_known_by_its_id(session_id: str, expected: bool) -> None:
    assert is_derived(session_id) is expected


# Restoring tool calls


def user(text: str) -> Message:
    return Message("user", text)


def answer(text: str) -> Message:
    return Message("assistant", text)


def used(number: int, before: str, after: str) -> tuple[Message, ...]:
    """A recorded answer with a tool call in the middle."""
    call = ToolCall(f"c{number}", "t", "{}")
    result = Message("tool", f"result {number}", tool_call_id=f"c{number}")
    return (Message("assistant", before, (call,)), result, answer(after))


RECORD = (
    user("One"),
    *used(1, "Look: ", "done."),
    user("Two"),
    *used(2, "Look: ", "done."),
    user("Three"),
    answer("I know."),
)


def test_text_becomes_the_recorded_answer() -> None:
    said = [
        user("One"), answer("Look:\ndone."), user("Two"), answer("Look: done. "),
        user("Three"), answer("I know."), user("Four"), answer("New."),
    ]  # fmt: skip
    assert restore_tool_calls(said, RECORD) == (*RECORD, user("Four"), answer("New."))


def test_the_last_part_of_an_answer_is_enough() -> None:
    """A reply that is not streamed has only the text after the last tool."""
    said = [user("One"), answer("done.")]
    assert restore_tool_calls(said, RECORD) == RECORD[:4]


def test_what_the_client_deleted_stays_away() -> None:
    said = [user("Two"), answer("Look: done."), user("Three"), answer("I know.")]
    assert restore_tool_calls(said, RECORD) == RECORD[4:]


@pytest.mark.parametrize("text", ["Look: not done.", "", "Look"])
def test_what_the_client_edited_stays_edited(text: str) -> None:
    said = (user("One"), answer(text))
    assert restore_tool_calls(said, RECORD) == said


def test_a_question_in_other_words_is_known_by_an_unmistakable_answer() -> None:
    wrapped = (user("### Task: answer with these sources: One"), *used(1, "", "It is blue."))
    said = [user("One"), answer("It is blue.")]
    assert restore_tool_calls(said, wrapped) == (user("One"), *wrapped[1:])
    twice = (*wrapped, user("Again"), *used(2, "", "It is blue."))
    assert restore_tool_calls(said, twice) == tuple(said)


def test_the_order_of_the_record_counts() -> None:
    record = (user("Q"), *used(1, "", "A"), user("Q"), *used(2, "", "A"))
    said = [user("Q"), answer("A"), user("Q"), answer("A"), user("Q"), answer("A")]
    assert restore_tool_calls(said, record) == (*record, user("Q"), answer("A"))


def test_calls_that_the_client_has_stay_its_own() -> None:
    said = (user("One"), *used(9, "Look: ", "done."))
    assert restore_tool_calls(said, RECORD) == said


def test_conversations_that_begin_with_an_answer_or_have_images() -> None:
    picture = Message("user", ({"type": "image_url"}, {"type": "text", "text": "One"}))
    record = (answer("Welcome."), picture, *used(1, "", "Nice."))
    said = [answer("Welcome."), picture, answer("Nice."), user("Two"), user("or three")]
    assert restore_tool_calls(said, record) == (*record, user("Two"), user("or three"))
    assert restore_tool_calls([], record) == ()
    assert restore_tool_calls(said, ()) == tuple(said)


def test_the_words_of_a_search() -> None:
    assert search_words("  Red plum\nRED ") == ("red", "plum")
    assert search_words(" ") == ()
    message = Message("user", ({"type": "text", "text": "A red"}, {"type": "text", "text": "Plum"}))
    assert matches(message, ("plum", "red"))
    assert not matches(message, ("plum", "blue"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a plum", "a plum"),
        ("plum " + "x" * 200, "plum " + "x" * 155 + "…"),
        ("y" * 200 + " Plum", "…" + "y" * 52 + " Plum"),
        ("y" * 100 + " plum " + "x" * 200, "…" + "y" * 52 + " plum " + "x" * 102 + "…"),
        ("x" * 200, "x" * 160 + "…"),
    ],
)
def test_excerpts(text: str, shown: str) -> None:
    assert excerpt(Message("user", text), ("plum",)) == shown
