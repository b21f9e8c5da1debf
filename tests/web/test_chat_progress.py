"""Tool progress in chat streams.

One running and one ending event per call, and never anything in the text.
"""

from __future__ import annotations

import pytest

from hermes_trio.core.events import (
    Event,
    Result,
    Text,
    ToolAnnounced,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
    Verdict,
)
from hermes_trio.web.state import WebOptions
from tests.support.asgi import HttpResponse
from tests.support.chat_api import PROGRESS, checked, progress, said
from tests.support.fakes import CHAT, Pause, ScriptedAgentFactory, Step, ask_stream, make_harness

ECHO = ToolStarted("call_1", "terminal", {"command": "echo hi"})
ECHOED = ToolCompleted("call_1", "hi")


async def stream(
    *script: Step, end: Result | Exception | None = None, **headers: str
) -> HttpResponse:
    """The stream of a turn."""
    harness = make_harness(script, end)
    return await harness.client.send(CHAT, ask_stream(), headers)


async def lives(*script: Step, end: Result | Exception | None = None) -> list[tuple[str, str, str]]:
    """The shown life of every call."""
    events = progress(await stream(*script, end=end))
    return [(event["toolCallId"], event["tool"], event["status"]) for event in events]


async def test_the_fields_of_both_events() -> None:
    answer = await stream(Text("Let me check. "), ECHO, ECHOED, Text("It said hi."))
    running, ending = progress(answer)
    assert running == {
        "tool": "terminal",
        "name": "terminal",
        "emoji": "💻",
        "label": "echo hi",
        "toolCallId": "call_1",
        "status": "running",
        "args": {"command": "echo hi"},
        "input": {"command": "echo hi"},
    }
    assert ending.pop("duration") >= 0
    assert ending == {
        "tool": "terminal",
        "name": "terminal",
        "toolCallId": "call_1",
        "status": "completed",
        "result": "hi",
        "output": "hi",
        "isError": False,
    }
    assert said(answer) == "Let me check. It said hi."
    assert b'"status": "running"' in answer.body
    assert b'"tool": "terminal"' in answer.body
    assert b'"toolCallId": "call_1"' in answer.body


async def test_the_start_is_shown_while_the_tool_runs() -> None:
    pause = Pause()
    harness = make_harness([ECHO, pause, ECHOED, Text("ok")])
    async with harness.client.post(CHAT, ask_stream()) as exchange:
        frame = await exchange.frame_where(status="running")
        assert frame.event == PROGRESS
        checked(frame)
        await pause.wait_reached()
        assert b"completed" not in exchange.raw
        pause.go()
        assert [event["status"] for event in progress(await exchange.end())] == [
            "running",
            "completed",
        ]


async def test_parallel_calls_keep_their_ids() -> None:
    script: list[Step] = [
        ToolStarted("a", "t"),
        ToolStarted("b", "t"),
        ToolCompleted("b"),
        ToolCompleted("a"),
        Text("."),
    ]
    assert await lives(*script) == [
        ("a", "t", "running"),
        ("b", "t", "running"),
        ("b", "t", "completed"),
        ("a", "t", "completed"),
    ]


@pytest.mark.parametrize(
    "noise",
    [
        [
            ToolStarted("i", "_thinking", {"x": "hidden"}),
            ToolOutput("i", "hidden"),
            ToolCompleted("i", "hidden"),
        ],
        [ToolAnnounced("_thinking", {"x": "hidden"})],
        [ToolCompleted("orphan", "hidden")],
        [ToolOutput("orphan", "hidden")],
        [ToolCompleted("call_1", "hidden")],
        [ToolOutput("call_1", "hidden")],
    ],
    ids=[
        "internal",
        "internal without id",
        "orphan end",
        "orphan output",
        "second end",
        "output after the end",
    ],
)
async def test_what_is_never_shown(noise: list[Event]) -> None:
    answer = await stream(ECHO, ECHOED, *noise, Text("."))
    assert [event["status"] for event in progress(answer)] == ["running", "completed"]
    assert b"hidden" not in answer.body


async def test_a_start_told_twice_is_shown_once() -> None:
    assert await lives(ECHO, ToolAnnounced("terminal"), ECHO, ECHOED, Text(".")) == [
        ("call_1", "terminal", "running"),
        ("call_1", "terminal", "completed"),
    ]


async def test_an_announced_call_has_exactly_the_id_it_is_started_with() -> None:
    assert await lives(ToolAnnounced("terminal"), ECHO, ECHOED, Text(".")) == [
        ("call_1", "terminal", "running"),
        ("call_1", "terminal", "completed"),
    ]


async def test_a_call_without_an_id_ends_with_the_run() -> None:
    pause = Pause()
    harness = make_harness([ToolAnnounced("web_search", {"query": "cats"}), Text("."), pause])
    async with harness.client.post(CHAT, ask_stream()) as exchange:
        running = (await exchange.frame_where(status="running")).json
        await pause.wait_reached()
        assert b'"completed"' not in exchange.raw
        pause.go()
        ending = progress(await exchange.end())[1]
    assert running["label"] == "cats"
    assert running["toolCallId"] == ending["toolCallId"]
    assert ending["status"] == "completed"


@pytest.mark.parametrize(
    "end", [None, RuntimeError("boom"), Result(verdict=Verdict.FAILED, error="boom")]
)
async def test_a_call_that_the_end_cut_short_is_cancelled(end: Result | Exception | None) -> None:
    answer = await stream(ECHO, ToolOutput("call_1", "partly"), end=end)
    running, ending = progress(answer)
    assert (running["status"], ending["status"]) == ("running", "cancelled")
    assert ending["isError"] is True
    assert ending["result"] == "partly"


async def test_a_failed_tool_has_no_error_key() -> None:
    """A truthy ``error`` at the top of a chunk makes the SDKs raise."""
    answer = await stream(ECHO, ToolCompleted("call_1", "not found", is_error=True), Text("."))
    ending = progress(answer)[1]
    assert ending["isError"] is True
    assert "error" not in ending


@pytest.mark.parametrize("text", ["x" * 1_000_000, "\U0001f40e" * 300_000, '"\\\n' * 300_000])
async def test_events_stay_far_below_128_kib(text: str) -> None:
    started = ToolStarted("call_1", "terminal", {"command": text, "list": [text] * 10})
    answer = await stream(started, ToolCompleted("call_1", text), Text("."))
    assert [event["status"] for event in progress(answer)] == ["running", "completed"]
    assert max(len(line) for line in answer.body.split(b"\n")) < 110_000


OPEN_WEBUI = {"X-OpenWebUI-Chat-Id": "1"}


@pytest.mark.parametrize(
    ("mode", "headers", "is_shown"),
    [
        ("auto", OPEN_WEBUI, True),
        ("auto", {}, False),
        ("on", {}, True),
        ("off", OPEN_WEBUI, False),
    ],
)
async def test_the_status_line_of_open_webui(
    mode: str, headers: dict[str, str], is_shown: bool
) -> None:
    harness = make_harness(
        ScriptedAgentFactory([ECHO, ECHOED, Text(".")]), options=WebOptions(open_webui_status=mode)
    )
    events = progress(await harness.client.send(CHAT, ask_stream(), headers))
    lines = [event.get("event") for event in events]
    description = "💻 terminal: echo hi"
    expected = [
        {"type": "status", "data": {"description": description, "done": False}},
        {"type": "status", "data": {"description": description, "done": True}},
    ]
    assert lines == (expected if is_shown else [None, None])
