"""The same scripts through the whole server: each ends as it should on chat, responses and runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from trio.testing import MockClock

from hermes_trio.agent.interface import AgentConfig, AgentContext, AgentFactory, UpstreamLimits
from hermes_trio.agents.upstream.client import QUIRKS_FRESH_SECONDS
from hermes_trio.agents.upstream.provider import provider
from tests.agents.upstream import tools_for_tests
from tests.support import chat_api, fakes
from tests.support.asgi import real_timeout
from tests.support.fakes import CHAT, AppHarness, ask_stream, open_harness
from tests.support.responses_api import RESPONSES, events, final, stream, text_of
from tests.support.runs_api import followed, shown, started, stopped
from tests.support.scripted_upstream import (
    CALLED,
    FINISH,
    USAGE,
    Call,
    Close,
    Finish,
    Raw,
    Reset,
    Say,
    Script,
    ScriptedUpstream,
    Stall,
    Think,
    calls,
    chunk,
    refusal,
    says,
    serve_scripts,
    sse,
    whole,
)
from tests.support.upstream_agent import KEY

TOOLS = tuple(f"{tools_for_tests.__name__}:{name}" for name in ("paced", "failing"))


class Behind(fakes.ScriptedAgentFactory):
    """In the place of a scripted agent: the real one."""

    def __init__(self, factory: AgentFactory) -> None:
        super().__init__((), can_continue=getattr(factory, "can_continue", False))
        self._factory = factory

    def factory(self, context: AgentContext) -> Any:
        return self._factory(context)


@asynccontextmanager
async def serving(
    *scripts: Script, read: float = 60.0, model: str = "m"
) -> AsyncIterator[tuple[AppHarness, ScriptedUpstream]]:
    """A server with the upstream agent in it, in front of a scripted upstream."""
    async with serve_scripts(*scripts) as upstream:
        limits = UpstreamLimits(read=read, retries=1)
        config = AgentConfig(
            base_url=upstream.base_url, api_key=KEY, model=model, tools=TOOLS, limits=limits
        )
        async with (
            provider.open(config, Path("/nonexistent")) as factory,
            open_harness(Behind(factory)) as harness,
        ):
            yield harness, upstream
            await harness.until_idle()


@frozen
class Seen:
    """What a client saw of a turn."""

    text: str
    thought: str
    ends: tuple[tuple[str, bool], ...]  # id and failure of each call, in the order of the ends
    end: str  # how the route calls the end of the turn
    error: str
    wire: str  # every byte


async def on_chat(harness: AppHarness) -> Seen:
    answer = await harness.client.send(CHAT, ask_stream())
    told = [event for event in chat_api.progress(answer) if event["status"] != "running"]
    last = chat_api.finish(answer)
    return Seen(
        chat_api.said(answer),
        chat_api.said(answer, "reasoning_content"),
        tuple((event["toolCallId"], event["isError"]) for event in told),
        chat_api.reason(answer),
        (last.get("hermes") or {}).get("error") or "",
        answer.body.decode(),
    )


async def on_responses(harness: AppHarness) -> Seen:
    answer = await harness.client.send(RESPONSES, stream())
    response = final(answer)
    output = response["output"]
    failures = {
        event["item"]["call_id"]: event["item"]["output"][0]["text"] == "not today"
        for event in events(answer)
        if event["type"] == "response.output_item.done"
        and event["item"]["type"] == "function_call_output"
    }
    thoughts = [item["summary"] for item in output if item["type"] == "reasoning"]
    error = (
        (response["error"] or {}).get("message")
        or (response.get("hermes") or {}).get("error")
        or ""
    )
    return Seen(
        text_of(response),
        "".join(part["text"] for summary in thoughts for part in summary),
        tuple(failures.items()),
        response["status"],
        error,
        answer.body.decode(),
    )


async def on_runs(harness: AppHarness) -> Seen:
    run_id = await started(harness)
    told = await followed(harness, run_id)
    kept = await shown(harness, run_id)

    def by_kind(kind: str) -> list[Any]:
        return [event for event in told if event["event"] == kind]

    return Seen(
        "".join(event["delta"] for event in by_kind("message.delta")),
        "".join(event["delta"] for event in by_kind("reasoning.delta")),
        tuple((event["toolCallId"], event["error"]) for event in by_kind("tool.completed")),
        told[-1]["event"],
        str(told[-1].get("error") or kept.get("error") or ""),
        json.dumps([told, kept]),
    )


ROUTES: dict[str, Callable[[AppHarness], Awaitable[Seen]]] = {
    "chat": on_chat,
    "responses": on_responses,
    "runs": on_runs,
}
ENDS = {
    "completed": {"chat": "stop", "responses": "completed", "runs": "run.completed"},
    "truncated": {"chat": "length", "responses": "incomplete", "runs": "run.completed"},
    "incomplete": {"chat": "error", "responses": "incomplete", "runs": "run.completed"},
    "failed": {"chat": "error", "responses": "failed", "runs": "run.failed"},
}


@frozen
class Case:
    """Scripts, and what has to come of them."""

    scripts: tuple[Script, ...]
    end: str
    text: str = ""
    thought: str = ""
    ends: tuple[tuple[str, bool], ...] = ()
    error: str = ""
    read: float = 60.0


PACES = [Call("paced", {"steps": steps}, f"c{steps}") for steps in (3, 1, 2)]
FIRST = (Say("Looking. "), Call("paced", {"steps": 1}, "c1"), CALLED)
AGAIN = {"Retry-After": "0"}
BIT_BY_BIT = sse(chunk({"content": "é🌍"})) + sse(chunk({}, "stop"))

CASES = {
    "text": Case((says("Hel", "lo"),), "completed", "Hello"),
    "reasoning": Case(
        ((Think("Hm. "), Think("Yes."), Say("Yes."), FINISH),), "completed", "Yes.", "Hm. Yes."
    ),
    "one tool": Case(
        (FIRST, says("Found.")), "completed", "Looking. Found.", ends=(("c1", False),)
    ),
    "three tools": Case(
        (calls(*PACES), says("Done.")),
        "completed",
        "Done.",
        ends=(("c1", False), ("c2", False), ("c3", False)),
    ),
    "tool error": Case(
        (calls(Call("failing", {}, "c1")), says("Pity.")),
        "completed",
        "Pity.",
        ends=(("c1", True),),
    ),
    "lost before": Case(([Reset()], says("Hello")), "completed", "Hello"),
    "lost before, for good": Case(([Reset()], [Close()]), "failed", error="was lost"),
    "lost after": Case(([Say("So far"), Reset()],), "incomplete", "So far", error="was lost"),
    "lost after a tool": Case(
        (FIRST, [Say("So far"), Close()]),
        "incomplete",
        "Looking. So far",
        ends=(("c1", False),),
        error="was lost",
    ),
    "stall": Case(([Stall()],) * 2, "failed", error="was silent for 0.1 s", read=0.1),
    "stall after": Case(
        ([Say("So far"), Stall()],), "incomplete", "So far", error="was silent", read=0.1
    ),
    "401": Case(([refusal(401, f"wrong key {KEY}")],), "failed", error="rejected the key (401)"),
    "404": Case(([refusal(404, "no model m")],), "failed", error="no model m"),
    "429": Case(([refusal(429, "slow", AGAIN)], says("Hello")), "completed", "Hello"),
    "429 for good": Case(
        ([refusal(429, "slow", AGAIN)],) * 2, "failed", error="accepts no more requests"
    ),
    "too long": Case(
        ([refusal(400, "x", code="context_length_exceeded")],),
        "failed",
        error="conversation is too long",
    ),
    "garbage": Case(([Raw(b"data: <html>\n\n")],), "failed", error="valid chat completion"),
    "half characters": Case(([Raw(bytes([byte])) for byte in BIT_BY_BIT],), "completed", "é🌍"),
    "no streams": Case(([refusal(400, "no streaming")], [whole("Hello")]), "completed", "Hello"),
    "out of tokens": Case(
        ([Say("Once"), Finish("length", USAGE)],), "truncated", "Once", error="limit"
    ),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", CASES)
async def test_every_script_ends_as_it_should(route: str, name: str) -> None:
    case = CASES[name]
    async with serving(*case.scripts, read=case.read) as (harness, upstream):
        with real_timeout():
            seen = await ROUTES[route](harness)
    assert (seen.text, seen.thought) == (case.text, case.thought)
    assert seen.ends == case.ends
    assert seen.end == ENDS[case.end][route]
    if case.end != "completed" and not (route == "runs" and "run.completed" in seen.end):
        assert case.error in seen.error
    assert KEY not in seen.wire
    assert not upstream.scripts


async def test_a_model_that_cannot_stream_leaves_the_others_streaming() -> None:
    scripts = [[refusal(400, "no streaming")], [whole("A")], says("B", "B"), [whole("A")]]
    async with serving(*scripts, model="") as (harness, upstream):
        upstream.models = ("a", "b")
        answers = [
            await harness.client.send(CHAT, ask_stream(model=name)) for name in ("a", "b", "a")
        ]
    assert [chat_api.said(answer) for answer in answers] == ["A", "BB", "A"]
    assert [(asked.json["model"], asked.json["stream"]) for asked in upstream.requests] == [
        ("a", True),
        ("a", False),
        ("b", True),
        ("a", False),
    ]


async def test_a_model_that_could_not_stream_streams_again_later(mock_clock: MockClock) -> None:
    scripts = [[refusal(400, "no streaming")], [whole("A")], says("B", "B"), says("C", "C")]
    async with serving(*scripts) as (harness, upstream):
        answers = [await harness.client.send(CHAT, ask_stream())]
        mock_clock.jump(QUIRKS_FRESH_SECONDS + 1)
        answers += [await harness.client.send(CHAT, ask_stream()) for _ in range(2)]
    assert [chat_api.said(answer) for answer in answers] == ["A", "BB", "CC"]
    assert [asked.json["stream"] for asked in upstream.requests] == [True, False, True, True]


@pytest.mark.parametrize("route", ["chat", "responses"])
async def test_options_and_images_reach_the_model(route: str) -> None:
    image = "data:image/png;base64,AAAA"
    schema = {"name": "x", "schema": {"type": "object"}}
    async with serving(says("{}")) as (harness, upstream):
        if route == "chat":
            parts: list[Any] = [{"type": "image_url", "image_url": {"url": image}}]
            shape = {"response_format": {"type": "json_schema", "json_schema": schema}}
            await harness.client.send(CHAT, ask_stream(parts, max_completion_tokens=9, **shape))
        else:
            parts = [{"role": "user", "content": [{"type": "input_image", "image_url": image}]}]
            shape = {"text": {"format": {"type": "json_schema", **schema}}}
            await harness.client.send(
                RESPONSES, stream(parts, max_output_tokens=9, instructions="Look.", **shape)
            )
    [sent] = [asked.json for asked in upstream.requests]
    [part] = sent["messages"][-1]["content"]
    assert part["image_url"]["url"] == image
    assert sent["response_format"] == {"type": "json_schema", "json_schema": schema}
    assert sent["max_tokens"] == 9
    assert sent["model"] == "m"


async def test_the_past_reaches_the_model_with_its_calls() -> None:
    async with serving(FIRST, says("Found."), says("Again.")) as (harness, upstream):
        first = final(await harness.client.send(RESPONSES, stream("One")))
        await harness.client.send(RESPONSES, stream("Two", previous_response_id=first["id"]))
    told = upstream.requests[-1].json["messages"]
    assert [(message["role"], message["content"]) for message in told] == [
        ("user", "One"),
        ("assistant", "Looking. "),
        ("tool", "took 1"),
        ("assistant", "Found."),
        ("user", "Two"),
    ]
    assert told[1]["tool_calls"][0]["id"] == told[2]["tool_call_id"] == "c1"


GIVEN: dict[str, Any] = {
    "type": "function",
    "function": {"name": "locate", "parameters": {"type": "object"}},
}
BOTH = calls(Call("locate", {"deep": 1}, "c1"), Call("paced", {"steps": 1}, "c2"))
TOLD = [
    ("user", "Where am I?"),
    ("assistant", None),
    ("tool", "took 1"),
    ("tool", "Oslo"),
]


async def test_tools_of_the_client_on_responses() -> None:
    async with serving(BOTH, says("In Oslo.")) as (harness, upstream):
        flat = {"type": "function", **GIVEN["function"]}
        first = final(await harness.client.send(RESPONSES, stream("Where am I?", tools=[flat])))
        assert [(item["type"], item["call_id"]) for item in first["output"]] == [
            ("function_call", "c2"),
            ("function_call_output", "c2"),
            ("function_call", "c1"),
        ]
        result = [{"type": "function_call_output", "call_id": "c1", "output": "Oslo"}]
        more = {"previous_response_id": first["id"], "tools": [flat]}
        second = final(await harness.client.send(RESPONSES, stream(result, **more)))
    assert (second["status"], text_of(second)) == ("completed", "In Oslo.")
    told = upstream.requests[-1].json["messages"]
    assert [(message["role"], message["content"]) for message in told] == TOLD
    assert [call["id"] for call in told[1]["tool_calls"]] == ["c2", "c1"]


@pytest.mark.parametrize("named", [{}, {"X-Hermes-Session-Id": "s"}], ids=["unnamed", "named"])
async def test_tools_of_the_client_on_chat(named: dict[str, str]) -> None:
    asked = {"role": "user", "content": "Where am I?"}
    scripts = (
        (Say("Looking. "), Call("paced", {"steps": 1}, "c0"), CALLED),
        (Say("And here. "), *BOTH),
        says("In Oslo."),
        says("Bye."),
    )
    async with serving(*scripts) as (harness, upstream):
        body = {"messages": [asked], "tools": [GIVEN], "stream": True}
        first = await harness.client.send(CHAT, body, named)
        assert chat_api.reason(first) == "tool_calls"
        made = [call for delta in chat_api.deltas(first) for call in delta.get("tool_calls", ())]
        assert [(call["id"], call["function"]["name"]) for call in made] == [("c1", "locate")]
        said = {"role": "assistant", "content": chat_api.said(first), "tool_calls": made}
        result = {"role": "tool", "tool_call_id": "c1", "content": "Oslo"}
        past = [asked, said, result]
        second = await harness.client.send(CHAT, {**body, "messages": past}, named)
        assert (chat_api.reason(second), chat_api.said(second)) == ("stop", "In Oslo.")
        past += [{"role": "assistant", "content": "In Oslo."}, {"role": "user", "content": "Bye!"}]
        await harness.client.send(CHAT, {**body, "messages": past}, named)
    # The server's calls and their results are there again, in their order, in every later turn.
    rounds = [
        ("user", "Where am I?"),
        ("assistant", "Looking. "),
        ("tool", "took 1"),
        ("assistant", "And here. "),
        ("tool", "took 1"),
        ("tool", "Oslo"),
    ]
    for request in upstream.requests[2:]:
        told = request.json["messages"]
        assert [(message["role"], message["content"]) for message in told][:6] == rounds
        assert [call["id"] for n in (1, 3) for call in told[n]["tool_calls"]] == ["c0", "c2", "c1"]
        assert [told[n]["tool_call_id"] for n in (2, 4, 5)] == ["c0", "c2", "c1"]


START = [
    {"role": "user", "content": "Count."},
    {"role": "assistant", "content": "One, two,"},
]


@pytest.mark.parametrize(
    ("path", "body"),
    [(CHAT, {"messages": START}), (RESPONSES, {"input": START})],
    ids=["chat", "responses"],
)
async def test_an_answer_that_has_begun_comes_last(path: str, body: dict[str, Any]) -> None:
    async with serving(says(" three.")) as (harness, upstream):
        answer = await harness.client.send(path, {**body, "stream": True})
    assert upstream.requests[0].json["messages"] == START
    assert b" three." in answer.body
    assert b"One" not in answer.body


async def test_a_session_goes_on_from_the_answer_that_was_continued() -> None:
    named = {"X-Hermes-Session-Id": "s"}
    scripts = FIRST, says("One, two,"), says(" three."), says("Four.")
    async with serving(*scripts) as (harness, upstream):
        await harness.client.send(CHAT, ask_stream("Count."), named)
        # A client knows the text of an answer, and nothing of the tools in it.
        start = {"role": "assistant", "content": "Looking. One, two,"}
        await harness.client.send(CHAT, {"messages": [START[0], start], "stream": True}, named)
        await harness.client.send(CHAT, ask_stream("And then?"), named)
    past = [
        ("user", "Count."),
        ("assistant", "Looking. "),
        ("tool", "took 1"),
    ]
    told = [
        [(message["role"], message["content"]) for message in asked.json["messages"]]
        for asked in upstream.requests[2:]
    ]
    assert told == [
        [*past, ("assistant", "One, two,")],
        [*past, ("assistant", "One, two, three."), ("user", "And then?")],
    ]


async def test_a_stop_closes_the_connection_to_the_model() -> None:
    async with serving([Say("So far"), Stall()]) as (harness, upstream):
        run_id = await started(harness)
        async with harness.client.open("GET", f"/v1/runs/{run_id}/events") as exchange:
            while b"So far" not in exchange.raw:
                await exchange._news.wait()
            await stopped(harness, run_id)
            await exchange.end()
        await upstream.until_closed()
        assert (await shown(harness, run_id))["status"] == "cancelled"
