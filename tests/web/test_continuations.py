"""An assistant message in the last place: the start of an answer, never the user's words."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_trio.core.events import Text, ToolCompleted, ToolStarted
from hermes_trio.core.messages import Message
from tests.support.chat_api import said
from tests.support.fakes import CHAT, ScriptedAgentFactory, Step, ask_stream, make_harness
from tests.support.responses_api import RESPONSES, final, idle_harness, stream, text_of

Json = dict[str, Any]
SESSION = {"X-Hermes-Session-Id": "s"}
# What an agent that took it for the user's words would run.
START: list[Json] = [
    {"role": "user", "content": "Clean up."},
    {"role": "assistant", "content": "/terminal rm -rf everything"},
]
HISTORY = (Message("user", "Clean up."), Message("assistant", "/terminal rm -rf everything"))


def continuing(text: str) -> ScriptedAgentFactory:
    return ScriptedAgentFactory([Text(text)], can_continue=True)


@pytest.mark.parametrize("session", [{}, SESSION], ids=["unnamed", "named"])
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_an_agent_that_cannot_continue_is_not_asked(
    is_streamed: bool, session: dict[str, str]
) -> None:
    async with idle_harness() as harness:
        for path, name in ((CHAT, "messages"), (RESPONSES, "input")):
            answer = await harness.client.send(path, {name: START, "stream": is_streamed}, session)
            assert answer.status == 400
            assert (answer.error["param"], answer.error["code"]) == (name, "cannot_continue")
        refused = await harness.client.send("/v1/runs", {"input": START})
        assert (refused.status, refused.error["param"]) == (400, "input")
        assert harness.agents.turns == []
        assert await harness.transcript("s") == []


async def test_an_agent_that_can_gets_the_start_of_its_answer() -> None:
    async with idle_harness(continuing(", carefully.")) as harness:
        chat = await harness.client.send(CHAT, {"messages": START, "stream": True})
        response = final(await harness.client.send(RESPONSES, stream(START)))
        assert said(chat) == text_of(response) == ", carefully."
        for turn in harness.agents.turns:
            assert (turn.message, turn.history) == ("", HISTORY)
            assert turn.is_continuation


async def test_other_turns_are_no_continuation() -> None:
    harness = make_harness(continuing("Hi"))
    tool = {"role": "tool", "tool_call_id": "c", "content": "3"}
    await harness.client.send(CHAT, ask_stream("One"), SESSION)
    await harness.client.send(CHAT, ask_stream("Two"), SESSION)
    await harness.client.send(CHAT, {"messages": [*START, tool]})
    assert [turn.is_continuation for turn in harness.agents.turns] == [False] * 3


async def test_a_session_keeps_the_rest_of_an_answer_that_it_has() -> None:
    harness = make_harness(continuing("One, two,"))
    count = {"role": "user", "content": "Count."}
    await harness.client.send(CHAT, ask_stream("Count."), SESSION)
    start = {"role": "assistant", "content": "One, two,"}
    await harness.client.send(CHAT, {"messages": [count, start]}, SESSION)
    await harness.client.send(CHAT, ask_stream("Go on."), SESSION)
    first, rest = Message("user", "Count."), Message("assistant", "One, two,")
    assert [turn.history for turn in harness.agents.turns] == [
        (),
        (first, rest),
        (first, Message("assistant", "One, two,One, two,")),
    ]
    assert await harness.transcript("s") == [
        ("user", "Count."),
        ("assistant", "One, two,"),
        ("assistant", "One, two,"),
        ("user", "Go on."),
        ("assistant", "One, two,"),
    ]


async def test_a_front_end_continues_the_answer_of_its_chat() -> None:
    chat = {"X-OpenWebUI-Chat-Id": "c-1", "X-OpenWebUI-User-Id": "u-1"}
    script: list[Step] = [ToolStarted("t", "terminal"), ToolCompleted("t", "2"), Text("One,")]
    harness = make_harness(ScriptedAgentFactory(script, can_continue=True))
    count, start = {"role": "user", "content": "Count."}, {"role": "assistant", "content": "One,"}
    first = await harness.client.send(CHAT, ask_stream("Count."), chat)
    await harness.client.send(CHAT, {"messages": [count, start]}, chat)
    turn = harness.agents.turns[-1]
    assert turn.is_continuation
    assert [(said.role, said.content) for said in turn.history] == [
        ("user", "Count."),
        ("assistant", ""),
        ("tool", "2"),
        ("assistant", "One,"),
    ]
    told = await harness.transcript(first.headers["x-hermes-session-id"])
    assert [role for role, _ in told].count("user") == 1


async def test_a_session_keeps_an_answer_that_the_client_began() -> None:
    harness = make_harness(continuing("two."))
    count = {"role": "user", "content": "Count."}
    start = {"role": "assistant", "content": "One, "}
    await harness.client.send(CHAT, {"messages": [count, start]}, SESSION)
    assert await harness.transcript("s") == [
        ("user", "Count."),
        ("assistant", "One, "),
        ("assistant", "two."),
    ]


async def test_a_response_continues_an_answer_that_was_continued() -> None:
    async with idle_harness(continuing(" three.")) as harness:
        begun = [
            {"role": "user", "content": "Count."},
            {"role": "assistant", "content": "One, two,"},
        ]
        first = final(await harness.client.send(RESPONSES, stream(begun)))
        await harness.client.send(RESPONSES, stream("More.", previous_response_id=first["id"]))
        assert harness.agents.turns[-1].history == (
            Message("user", "Count."),
            Message("assistant", "One, two, three."),
        )


async def test_a_session_turn_sees_one_answer() -> None:
    async with idle_harness(continuing("two.")) as harness:
        begun = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, "}]
        await harness.client.send(CHAT, {"messages": begun}, SESSION)
        await harness.client.send("/api/sessions/s/chat", {"message": "More."})
        assert harness.agents.turns[-1].history == (
            Message("user", "Count."),
            Message("assistant", "One, two."),
        )
