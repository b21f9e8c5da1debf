"""Turns that continue others: everything that was said is there, once."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_trio.core.events import Result, Text, ToolCompleted, ToolStarted
from hermes_trio.core.messages import Message
from tests.support.fakes import AppHarness, Pause, ScriptedAgentFactory, Step
from tests.support.responses_api import (
    CONVERSATIONS,
    RESPONSES,
    created,
    final,
    idle_harness,
    say,
    stream,
    whole,
)

WITH_TOOLS: tuple[Step, ...] = (
    Text("Looking."),
    ToolStarted("c1", "terminal", {"command": "ls"}),
    ToolCompleted("c1", "a b"),
    Text("Two files."),
)
ROLES = ["user", "assistant", "tool", "assistant"]


async def turn(harness: AppHarness, body: dict[str, Any]) -> dict[str, Any]:
    answer = await harness.client.send(RESPONSES, body)
    return final(answer) if body.get("stream") else whole(answer)


def told(messages: tuple[Message, ...]) -> list[tuple[str, Any]]:
    return [(message.role, message.content) for message in messages]


def said(*questions: str) -> list[tuple[str, Any]]:
    """The transcript after some turns of the script above."""
    answer = [("assistant", "Looking."), ("tool", "a b"), ("assistant", "Two files.")]
    return [message for question in questions for message in [("user", question), *answer]]


@pytest.mark.parametrize("ask", [say, stream])
@pytest.mark.parametrize("kind", ["previous_response_id", "name", "conv_", "object"])
async def test_three_turns_are_twelve_messages(kind: str, ask: Any) -> None:
    async with idle_harness(WITH_TOOLS) as harness:
        where = await conversation_of(harness, kind)
        last: dict[str, Any] = {}
        for n in range(3):
            chain = where or ({"previous_response_id": last["id"]} if last else {})
            last = await turn(harness, ask(f"Question {n}", **chain))
            expected = said(*(f"Question {m}" for m in range(n)))
            assert told(harness.agents.turns[n].history) == expected
        [session_id] = {made.session_id for made in harness.agents.turns}
        everything = said("Question 0", "Question 1", "Question 2")
        assert len(everything) == 12
        assert await harness.transcript(session_id) == everything
        if not where:
            assert told(await harness.store.load_history("ann", last["id"])) == everything
        calls = [
            message.tool_calls for message in harness.agents.turns[2].history if message.tool_calls
        ]
        assert [call.call_id for group in calls for call in group] == ["c1", "c1"]


async def conversation_of(harness: AppHarness, kind: str) -> dict[str, Any]:
    if kind == "previous_response_id":
        return {}
    if kind == "name":
        return {"conversation": "my chat / ü"}
    made = (await harness.client.send(CONVERSATIONS, {})).json["id"]
    return {"conversation": made if kind == "conv_" else {"id": made}}


async def test_a_conversation_holds_each_item_once() -> None:
    async with idle_harness(WITH_TOOLS) as harness:
        where = await conversation_of(harness, "conv_")
        outputs = [(await turn(harness, say("Go", **where)))["output"] for _ in range(3)]
        path = f"{CONVERSATIONS}/{where['conversation']}/items?order=asc&limit=100"
        items = (await harness.client.get(path)).json["data"]
        assert [item["type"] for item in items] == [
            "message", "message", "function_call", "function_call_output", "message",
        ] * 3  # fmt: skip
        assert [item for item in items if item.get("role") != "user"] == [
            i for o in outputs for i in o
        ]
        assert len({item["id"] for item in items}) == 15


async def test_the_session_id_stays() -> None:
    async with idle_harness() as harness:
        first = await harness.client.send(RESPONSES, say())
        second = await harness.client.send(RESPONSES, say(previous_response_id=first.json["id"]))
        other = await harness.client.send(RESPONSES, say())
        name = "x-hermes-session-id"
        assert first.headers[name] == second.headers[name] != other.headers[name]
        assert second.json["previous_response_id"] == first.json["id"]


async def test_a_session_that_the_agent_moved_on_to() -> None:
    async with idle_harness([Text("Hi")], Result("", session_id="moved")) as harness:
        first = await turn(harness, say())
        await turn(harness, say(previous_response_id=first["id"]))
        assert harness.agents.turns[1].session_id == "moved"


async def test_a_fork() -> None:
    async with idle_harness() as harness:
        root = await turn(harness, say("root"))
        left = await turn(harness, say("left", previous_response_id=root["id"]))
        right = await turn(harness, say("right", previous_response_id=root["id"]))
        await turn(harness, say("left again", previous_response_id=left["id"]))
        answer = ("assistant", "Hello world")
        assert told(harness.agents.turns[2].history) == [("user", "root"), answer]
        assert told(harness.agents.turns[3].history) == [
            ("user", "root"),
            answer,
            ("user", "left"),
            answer,
        ]
        assert told(await harness.store.load_history("ann", right["id"])) == [
            ("user", "root"), answer, ("user", "right"), answer,
        ]  # fmt: skip


async def test_chaining_from_what_was_cut() -> None:
    pause = Pause()
    script: list[Step] = [
        Text("Half"),
        ToolStarted("c", "t"),
        pause,
        ToolCompleted("c", "x"),
        Text("."),
    ]
    async with idle_harness(ScriptedAgentFactory(script, is_async=True)) as harness:
        async with harness.client.post(RESPONSES, stream("First")) as exchange:
            response_id = await created(exchange)
            await pause.wait_reached()
        await harness.until_idle()
        pause.go()
        await turn(harness, say("Go on", previous_response_id=response_id))
        assert told(harness.agents.turns[1].history) == [
            ("user", "First"), ("assistant", "Half"), ("tool", "[cancelled before it ended]"),
        ]  # fmt: skip


async def test_chaining_from_what_still_runs() -> None:
    pause = Pause()
    async with (
        idle_harness(ScriptedAgentFactory([pause, Text("Hi")], is_async=True)) as harness,
        harness.client.post(RESPONSES, stream()) as exchange,
    ):
        response_id = await created(exchange)
        body = say(previous_response_id=response_id)
        answer = await harness.client.send(RESPONSES, body)
        assert (answer.status, answer.error["code"]) == (409, "previous_response_in_progress")
        pause.go()
        await exchange.frame_where(type="response.completed")
        assert (await harness.client.send(RESPONSES, body)).status == 200


@pytest.mark.parametrize("ask", [say, stream])
async def test_chaining_from_nothing(ask: Any) -> None:
    async with idle_harness() as harness:
        answer = await harness.client.send(RESPONSES, ask(previous_response_id="resp_x"))
        assert (answer.status, answer.error["code"]) == (404, "previous_response_not_found")
        assert answer.error["param"] == "previous_response_id"


@pytest.mark.parametrize("kind", ["previous_response_id", "name", "conv_"])
async def test_instructions_are_inherited_until_there_are_others(kind: str) -> None:
    async with idle_harness() as harness:
        where = await conversation_of(harness, kind)
        last: dict[str, Any] = {}
        for given in ({"instructions": "Be brief."}, {}, {"instructions": "Be long."}, {}):
            chain = where or ({"previous_response_id": last["id"]} if last else {})
            last = await turn(harness, say(**chain, **given))
        used = [made.instructions for made in harness.agents.turns]
        assert used == ["Be brief.", "Be brief.", "Be long.", "Be long."]
        assert last["instructions"] == "Be long."


async def test_an_explicit_history_wins_and_is_kept() -> None:
    history = [{"role": "user", "content": "Before"}, {"role": "assistant", "content": "Yes"}]
    async with idle_harness() as harness:
        first = await turn(harness, say("Other", instructions="Be brief."))
        second = await turn(
            harness, say("Now", previous_response_id=first["id"], conversation_history=history)
        )
        await turn(harness, say("Again", previous_response_id=second["id"]))
        await turn(
            harness, say("Lost", previous_response_id="resp_x", conversation_history=history)
        )
        before = [("user", "Before"), ("assistant", "Yes")]
        _, made, chained, lost = harness.agents.turns
        assert told(made.history) == told(lost.history) == before
        assert made.instructions == ""
        assert made.session_id != harness.agents.turns[0].session_id
        assert told(chained.history) == [*before, ("user", "Now"), ("assistant", "Hello world")]
        assert chained.session_id == made.session_id


@pytest.mark.parametrize(("more", "kept"), [({}, 150), ({"truncation": "auto"}, 100)])
async def test_truncation(more: Any, kept: int) -> None:
    history = [{"role": "user", "content": str(n)} for n in range(150)]
    async with idle_harness() as harness:
        await turn(harness, say(conversation_history=history, **more))
        assert told(harness.agents.turns[0].history) == [
            ("user", str(n)) for n in range(150 - kept, 150)
        ]


async def test_truncation_counts_the_input_and_parts_no_result_from_its_call() -> None:
    calls = [{"id": "c", "function": {"name": "t", "arguments": "{}"}}]
    history = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "1", "tool_call_id": "c"},
        *({"role": "user", "content": str(n)} for n in range(97)),
    ]
    async with idle_harness() as harness:
        await turn(harness, say(["a", "b", "c"], conversation_history=history, truncation="auto"))
        kept = told(harness.agents.turns[0].history)
        assert (kept[0], kept[-2:], len(kept)) == (
            ("user", "0"),
            [("user", "a"), ("user", "b")],
            99,
        )
