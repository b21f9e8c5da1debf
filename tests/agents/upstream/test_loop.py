"""The tool loop against a scripted upstream.

What is emitted, what is run, and what the model is sent.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from hermes_trio.agent.event_queue import RunEnded
from hermes_trio.core.events import Reasoning, Text, ToolCompleted, ToolOutput, ToolStarted, Verdict
from hermes_trio.core.messages import Message, ToolCall, Usage
from hermes_trio.tools.base import ToolError, ToolUse, tool
from tests.support.fakes import Pause
from tests.support.scripted_upstream import (
    CALLED,
    FINISH,
    USAGE,
    Call,
    Calls,
    Finish,
    Say,
    Stall,
    Think,
    calls,
    says,
)
from tests.support.upstream_agent import ClientCall, Question, open_upstream_harness


@tool
async def echo(text: str = "") -> str:
    """Say it again."""
    return f"echo: {text}"


@tool
async def rest(seconds: float, *, use: ToolUse) -> str:
    """Sleep."""
    await use.output(f"sleeping {seconds:g}")
    await trio.sleep(seconds)
    return f"slept {seconds:g}"


@tool
async def broken() -> str:
    """Raise an unexpected exception."""
    raise KeyError("no such thing")


@tool
async def picky() -> str:
    """Refuse."""
    raise ToolError("not today")


TOOLS = (echo, rest, broken, picky)


async def test_text() -> None:
    async with open_upstream_harness(says("Hel", "lo ", "wörld")) as harness:
        result = await harness.turn("Hi")
    assert (result.verdict, result.error, result.text) == (Verdict.COMPLETED, "", "")
    assert result.usage == Usage(5, 7)
    assert harness.emitter.said == "Hello wörld"
    [sent] = harness.sent
    assert sent == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    [asked] = harness.upstream.requests
    assert (asked.method, asked.path) == ("POST", "/v1/chat/completions")
    assert asked.headers["authorization"].startswith("Bearer canary-")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_reasoning(name: str) -> None:
    async with open_upstream_harness(
        [Think("Let me ", name), Think("see.", name), Say("Done"), FINISH]
    ) as harness:
        await harness.turn()
    assert (harness.emitter.thought, harness.emitter.said) == ("Let me see.", "Done")
    kinds = [type(event) for event in harness.emitter.events]
    assert kinds == sorted(kinds, key=[Reasoning, Text].index)


async def test_text_is_said_as_it_comes() -> None:
    pause = Pause()
    async with (
        open_upstream_harness([Say("So far"), pause, Say("."), FINISH]) as harness,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(harness.turn)
        await pause.wait_reached()
        await harness.emitter.until(Text)
        assert harness.emitter.said == "So far"
        pause.go()
    assert harness.emitter.said == "So far."


async def test_a_turn_without_tools_offers_none() -> None:
    async with open_upstream_harness(says("A title."), tools=TOOLS) as harness:
        await harness.turn(options={"tools": [GIVEN], "tool_choice": "auto"}, allows_tools=False)
    assert harness.emitter.said == "A title."
    assert not {"tools", "tool_choice"} & harness.sent[0].keys()


async def test_one_tool() -> None:
    first = (Think("Hm."), Say("Looking. "), Call("echo", {"text": "é"}, "c1"), CALLED)
    async with open_upstream_harness(first, says("Found."), tools=TOOLS) as harness:
        result = await harness.turn()
    assert (result.verdict, result.usage) == (Verdict.COMPLETED, Usage(10, 14))
    assert harness.emitter.events == [
        Reasoning("Hm."),
        Text("Looking. "),
        ToolStarted("c1", "echo", {"text": "é"}),
        ToolCompleted("c1", "echo: é"),
        Text("Found."),
    ]
    assert [tool["function"]["name"] for tool in harness.sent[0]["tools"]] == [
        "echo",
        "rest",
        "broken",
        "picky",
    ]
    function = {"name": "echo", "arguments": '{"text": "\\u00e9"}'}
    assert harness.messages[1:] == [
        {
            "role": "assistant",
            "content": "Looking. ",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "echo: é"},
    ]


async def test_three_tools_at_once_end_in_the_order_of_their_ends(autojump_clock: Any) -> None:
    made = [Call("rest", {"seconds": seconds}, f"c{n}") for n, seconds in enumerate([3, 1, 2])]
    async with open_upstream_harness(calls(*made), says("Done"), tools=TOOLS) as harness:
        began = trio.current_time()
        await harness.turn()
        assert trio.current_time() - began == pytest.approx(3, abs=0.1)
    starts = [event.call_id for event in harness.emitter.all(ToolStarted)]
    assert starts == ["c0", "c1", "c2"]
    assert (
        harness.emitter.events.index(harness.emitter.all(ToolCompleted)[0]) > 5
    )  # they all ran before one ended
    assert {event.call_id for event in harness.emitter.all(ToolOutput)} == {"c0", "c1", "c2"}
    assert [call_id for call_id, _, _ in harness.emitter.ends] == ["c1", "c2", "c0"]
    results = [(m["tool_call_id"], m["content"]) for m in harness.messages if m["role"] == "tool"]
    assert results == [("c0", "slept 3"), ("c1", "slept 1"), ("c2", "slept 2")]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (Call("broken"), "The tool failed: KeyError: 'no such thing'"),
        (Call("picky"), "not today"),
        (Call("nobody"), "There is no tool 'nobody'. Available tools: echo, rest, broken, picky."),
        (Call("echo", '{"text": '), "The arguments are not valid JSON"),
        (Call("echo", "[1]"), "The arguments must be a JSON object, not: [1]"),
        (Call("echo", {"text": 1}), "argument 'text'"),
    ],
)
async def test_a_tool_error_is_sent_to_the_model(call: Call, told: str) -> None:
    async with open_upstream_harness(calls(call), says("I see."), tools=TOOLS) as harness:
        result = await harness.turn()
    assert (result.verdict, harness.emitter.said) == (Verdict.COMPLETED, "I see.")
    [(call_id, text, is_error)] = harness.emitter.ends
    assert (call_id, is_error) == ("call_1", True)
    assert told in text
    assert harness.messages[-1] == {"role": "tool", "tool_call_id": "call_1", "content": text}


async def test_a_tool_without_arguments() -> None:
    async with open_upstream_harness(calls(Call("echo", "")), says("Done"), tools=TOOLS) as harness:
        await harness.turn()
    assert harness.emitter.ends == [("call_1", "echo: ", False)]
    assert harness.messages[-2]["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize("is_approving", [True, False])
async def test_a_tool_may_ask(is_approving: bool) -> None:
    @tool
    async def careful(*, use: ToolUse) -> str:
        return "did it" if await use.ask("rm x", "deletes", ("rm",), False) else "did not"

    async with open_upstream_harness(
        calls(Call("careful")), says("Done"), tools=[careful]
    ) as harness:
        harness.emitter.is_approving = is_approving
        await harness.turn()
    assert harness.emitter.all(Question) == [Question("rm x", "deletes", ("rm",), "call_1", False)]
    assert harness.emitter.ends == [("call_1", "did it" if is_approving else "did not", False)]


async def test_what_a_tool_knows() -> None:
    seen: list[ToolUse] = []

    @tool
    async def look(*, use: ToolUse) -> None:
        seen.append(use)

    async with open_upstream_harness(calls(Call("look")), says("Done"), tools=[look]) as harness:
        await harness.turn(principal="ann")
        assert seen[0].workspace == harness.agent.workspace
    assert (seen[0].call_id, seen[0].session_id, seen[0].principal) == (
        "call_1",
        "session_1",
        "ann",
    )


async def test_ids_that_are_missing_or_used_twice_are_replaced() -> None:
    nameless = [Call("echo", {"text": text}, "") for text in "ab"]
    again = [Call("echo", {"text": text}, "c1") for text in "cd"]
    past = (
        Message("assistant", "", (ToolCall("c0", "echo", "{}"),)),
        Message("tool", "x", tool_call_id="c0"),
    )
    scripts = [calls(*nameless), calls(*again), calls(Call("echo", {}, "c0")), says("Done")]
    async with open_upstream_harness(*scripts, tools=TOOLS) as harness:
        await harness.turn(history=past)
    made = [call["id"] for m in harness.messages for call in m.get("tool_calls", ())]
    answered = [m["tool_call_id"] for m in harness.messages if m["role"] == "tool"]
    assert made == answered
    assert len(set(made)) == len(made) == 6
    assert {"c0", "c1"} < set(made)
    assert sorted(result for _, result, _ in harness.emitter.ends) == [
        "echo: ",
        *(f"echo: {c}" for c in "abcd"),
    ]


async def test_too_many_rounds() -> None:
    rounds = [calls(Call("echo", {}, f"c{n}")) for n in range(2)]
    async with open_upstream_harness(
        *rounds, says("That is all I have."), tools=TOOLS, max_iterations=2
    ) as harness:
        result = await harness.turn()
    assert (result.verdict, result.error) == (
        Verdict.INCOMPLETE,
        "The turn reached its limit of 2 model calls.",
    )
    assert harness.emitter.said == "That is all I have."
    assert len(harness.emitter.ends) == 2
    assert [sent.get("tool_choice") for sent in harness.sent] == [None, None, "none"]


async def test_a_model_that_calls_tools_to_the_very_end() -> None:
    rounds = [calls(Call("echo", {}, f"c{n}")) for n in range(2)]
    async with open_upstream_harness(*rounds, tools=TOOLS, max_iterations=1) as harness:
        result = await harness.turn()
    assert result.verdict is Verdict.INCOMPLETE
    assert len(harness.emitter.ends) == 1


@pytest.mark.parametrize(
    ("reason", "verdict"), [("length", Verdict.TRUNCATED), ("content_filter", Verdict.INCOMPLETE)]
)
async def test_an_answer_that_was_cut(reason: str, verdict: Verdict) -> None:
    async with open_upstream_harness(
        [Say("Once upon"), Call("echo", '{"te'), Finish(reason, USAGE)], tools=TOOLS
    ) as harness:
        result = await harness.turn()
    assert (result.verdict, result.usage, harness.emitter.said) == (
        verdict,
        Usage(5, 7),
        "Once upon",
    )
    assert result.error
    assert harness.emitter.ends == []


# -- tools of the client --

GIVEN = {
    "type": "function",
    "function": {"name": "locate", "description": "Where?", "parameters": {}},
}
FLAT: dict[str, Any] = {
    "type": "function",
    "name": "locate",
    "description": "Where?",
    "parameters": {},
    "strict": None,
}


@pytest.mark.parametrize("given", [GIVEN, FLAT], ids=["chat", "responses"])
async def test_a_call_for_the_client_ends_the_turn(given: Any) -> None:
    script = [Say("Where are you? "), *calls(Call("locate", {"deep": [1]}, "c1"))]
    async with open_upstream_harness(script, tools=TOOLS) as harness:
        result = await harness.turn(options={"tools": [given, {"type": "web_search"}]})
    assert (result.verdict, result.usage) == (Verdict.COMPLETED, Usage(5, 7))
    assert harness.emitter.events == [
        Text("Where are you? "),
        ClientCall("c1", "locate", '{"deep": [1]}'),
    ]
    assert harness.sent[0]["tools"][-1] == GIVEN
    assert len(harness.sent[0]["tools"]) == len(TOOLS) + 1


async def test_server_tools_run_before_the_client_gets_its_calls() -> None:
    made = [Call("locate", {}, "c1"), Call("echo", {"text": "x"}, "c2"), Call("locate", {}, "c3")]
    async with open_upstream_harness(calls(*made), tools=TOOLS) as harness:
        result = await harness.turn(options={"tools": [GIVEN]})
    assert result.verdict is Verdict.COMPLETED
    assert harness.emitter.events == [
        ToolStarted("c2", "echo", {"text": "x"}),
        ToolCompleted("c2", "echo: x"),
        ClientCall("c1", "locate", "{}"),
        ClientCall("c3", "locate", "{}"),
    ]


async def test_a_tool_of_the_client_wins_over_one_of_ours() -> None:
    given = {"type": "function", "name": "echo", "parameters": {"type": "object"}}
    async with open_upstream_harness(calls(Call("echo", {}, "c1")), tools=TOOLS) as harness:
        await harness.turn(options={"tools": [given]})
    assert harness.emitter.events == [ClientCall("c1", "echo", "{}")]
    names = [tool["function"]["name"] for tool in harness.sent[0]["tools"]]
    assert sorted(names) == sorted(["echo", "rest", "broken", "picky"])


async def test_the_turn_goes_on_when_the_client_has_the_result() -> None:
    past = (
        Message("user", "Where am I?"),
        Message("assistant", "", (ToolCall("c1", "locate", "{}"), ToolCall("c2", "locate", "{}"))),
        Message("tool", "Oslo", tool_call_id="c1"),
        Message("tool", "Rome", tool_call_id="c2"),
    )
    async with open_upstream_harness(says("In Oslo or Rome.")) as harness:
        await harness.turn("", history=past, options={"tools": [GIVEN]})
    assert [(m["role"], m["content"]) for m in harness.messages] == [
        ("user", "Where am I?"),
        ("assistant", None),
        ("tool", "Oslo"),
        ("tool", "Rome"),
    ]


async def test_a_forced_call_is_forced_once() -> None:
    chosen = {"type": "function", "name": "echo"}
    async with open_upstream_harness(calls(Call("echo")), says("Done"), tools=TOOLS) as harness:
        await harness.turn(options={"tool_choice": chosen, "parallel_tool_calls": False})
    forced = {"type": "function", "function": {"name": "echo"}}
    assert [sent["tool_choice"] for sent in harness.sent] == [forced, "auto"]
    assert all(sent["parallel_tool_calls"] is False for sent in harness.sent)


# -- called off --


async def test_cancelled_in_the_middle_of_a_stream() -> None:
    async with open_upstream_harness([Say("So far"), Stall()]) as harness:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(harness.turn)
            await harness.emitter.until(Text)
            nursery.cancel_scope.cancel()
        await harness.upstream.until_closed()
    assert harness.emitter.said == "So far"


async def test_cancelled_before_the_first_byte() -> None:
    pause = Pause()
    async with open_upstream_harness([pause]) as harness:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(harness.turn)
            await pause.wait_reached()
            nursery.cancel_scope.cancel()
        pause.go()
        await harness.upstream.until_closed()
    assert harness.emitter.events == []


async def test_cancelled_while_tools_run() -> None:
    left: list[str] = []

    @tool
    async def hang(name: str, *, use: ToolUse) -> str:
        await use.output("here")
        try:
            await trio.sleep_forever()
        finally:
            left.append(name)

    made = [Call("hang", {"name": name}, name) for name in "ab"]
    async with (
        open_upstream_harness(calls(*made), tools=[hang]) as harness,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(harness.turn)
        while len(harness.emitter.all(ToolOutput)) < 2:
            await harness.emitter.changed.wait()
        nursery.cancel_scope.cancel()
    assert sorted(left) == ["a", "b"]
    assert harness.emitter.ends == []


async def test_a_run_that_is_over_is_no_error_of_the_tool() -> None:
    @tool
    async def late() -> str:
        raise RunEnded

    async with open_upstream_harness(calls(Call("late")), tools=[late]) as harness:
        with pytest.RaisesGroup(RunEnded):
            await harness.turn()
    assert harness.emitter.ends == []


async def test_pieces_of_calls_are_joined() -> None:
    pieces: list[dict[str, Any]] = [
        {"index": 0, "id": "c1", "type": "function", "function": {"name": "echo", "arguments": ""}},
        {
            "index": 1,
            "id": "c2",
            "type": "function",
            "function": {"name": "echo", "arguments": '{"te'},
        },
        {"index": 0, "function": {"arguments": '{"text": "a'}},
        {"index": 1, "function": {"arguments": 'xt": "b"}'}},
        {"index": 0, "function": {"arguments": '"}'}},
    ]
    async with open_upstream_harness(
        [*(Calls((piece,)) for piece in pieces), CALLED], says("Done"), tools=TOOLS
    ) as harness:
        await harness.turn()
    assert sorted(harness.emitter.ends) == [("c1", "echo: a", False), ("c2", "echo: b", False)]
    assert json.loads(harness.messages[-3]["tool_calls"][0]["function"]["arguments"]) == {
        "text": "a"
    }
