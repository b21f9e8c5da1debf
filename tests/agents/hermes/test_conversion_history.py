from __future__ import annotations

from typing import Any

from hermes_trio.agents.hermes.conversion import (
    merge_history,
    to_content,
    to_history,
    without_private_keys,
)
from hermes_trio.core.messages import Message, ToolCall

TALK = (
    Message("user", "List it"),
    Message("assistant", "", (ToolCall("c1", "terminal", '{"command": "ls"}'),), reasoning="hm"),
    Message("tool", "a b", tool_call_id="c1", name="terminal"),
    Message("assistant", "\n\nThere are two. "),
)


def test_messages_become_those_of_the_chat_api() -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "terminal", "arguments": '{"command": "ls"}'},
    }
    assert to_history(TALK) == [
        {"role": "user", "content": "List it"},
        {"role": "assistant", "content": "", "tool_calls": [call], "reasoning": "hm"},
        {"role": "tool", "content": "a b", "tool_call_id": "c1", "name": "terminal"},
        {"role": "assistant", "content": "There are two."},
    ]


def test_parts_are_copied() -> None:
    part = {"type": "text", "text": "Hi"}
    (copy,) = to_content((part,))
    assert copy == part
    assert copy is not part


def test_marks_of_the_agent_are_left_out_and_stay_where_they_are() -> None:
    marked = [{"role": "user", "content": "Hi", "_db_persisted": True}]
    assert without_private_keys(marked) == [{"role": "user", "content": "Hi"}]
    assert marked[0]["_db_persisted"] is True


def say(*texts: str) -> list[dict[str, Any]]:
    return [
        {"role": "user" if at % 2 == 0 else "assistant", "content": text}
        for at, text in enumerate(texts)
    ]


def test_a_session_that_began_elsewhere_goes_on() -> None:
    stored = say("a", "b", "c", "d ")
    assert merge_history(stored, []) == stored
    assert merge_history(stored, say("c", "d")) == stored


def test_our_own_account_counts_when_they_disagree() -> None:
    ours = say("c", "other")
    assert merge_history(say("a", "b", "c", "d"), ours) is ours
    assert merge_history(say("d"), ours) is ours
    assert merge_history([], ours) is ours
