"""What requests choose: options, sessions, history, idempotency keys."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.golden.agent import Script
from tests.golden.dialects import (
    CHAT,
    HI,
    HI_STREAM,
    INPUT,
    RUNS,
    SESSIONS,
    read_run,
)
from tests.golden.flows import (
    FLOWS,
    Route,
    held_after,
    make_session,
    on_each_route,
    scenario,
)
from tests.golden.flows_approvals import ASKING, answer
from tests.golden.scenario_run import Scenario, ScenarioRun
from tests.golden.scripts import SCRIPTS

KEY = {"Idempotency_Key": "golden-key"}


def _add_chat_options() -> None:
    async def usage(script: Script, play: ScenarioRun) -> None:
        play.script = script
        body = {**HI_STREAM, "stream_options": {"include_usage": True}}
        await play.post("streamed", CHAT, body)
        await play.note_run()

    async def status_line(script: Script, play: ScenarioRun) -> None:
        play.script = script
        await play.post(
            "streamed", CHAT, HI_STREAM, X_OpenWebUI_Chat_Id="chat-1", X_OpenWebUI_User_Name="Ann"
        )
        await play.note_run()

    for name in (
        "plain",
        "usage",
        "one_tool",
        "client_call",
        "reasoning_then_text",
        "truncated",
        "failed",
        "raises",
    ):
        about = f"The script '{name}' with the option include_usage."
        FLOWS.append(Scenario(f"include-usage-{name}", about, partial(usage, SCRIPTS[name])))
    for name in (
        "plain",
        "one_tool",
        "overlapping_tools",
        "noticed_tool",
        "raises_in_tool",
        "large_values",
    ):
        about = f"The script '{name}' with the headers of Open WebUI."
        FLOWS.append(Scenario(f"status-line-{name}", about, partial(status_line, SCRIPTS[name])))


_add_chat_options()


@scenario("status-line-approval")
async def status_line_approval(play: ScenarioRun) -> None:
    """A question and its answer in the status line of Open WebUI, with the option include_usage."""
    play.script = ASKING
    body = {**HI_STREAM, "stream_options": {"include_usage": True}}
    async with play.open("asking", "POST", CHAT, body, X_OpenWebUI_Chat_Id="chat-1"):
        await play.wait_held("ask")
        await answer(play, "answer", "deny")
    await play.note_run()


@scenario("chat-sessions")
async def chat_sessions(play: ScenarioRun) -> None:
    """Chat turns in a session that the client names: the second one knows of the first."""
    play.script = SCRIPTS["one_tool"]
    names = {"X_Hermes_Session_Id": "named", "X_Hermes_Session_Key": "memory-1"}
    await play.post("first", CHAT, HI_STREAM, **names)
    await play.note_run("first")
    await play.post("second", CHAT, HI, **names)
    await play.note_run("second")
    await play.get("messages", f"{SESSIONS}/named/messages")
    await play.get("session", f"{SESSIONS}/named")


@scenario("chat-history")
async def chat_history(play: ScenarioRun) -> None:
    """A chat request with system messages, history, results of tools, images and sampling options."""
    play.script = SCRIPTS["plain"]
    call = {
        "id": "call_a",
        "type": "function",
        "function": {"name": "get_weather", "arguments": "{}"},
    }
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "And kind."}]},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_a", "content": "rain"},
    ]
    await play.post("results", CHAT, {"messages": messages})
    await play.note_run("results")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    said = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}
    more = {
        "model": "hermes-agent",
        "temperature": 0.5,
        "max_completion_tokens": 9,
        "user": "u",
        "seed": 7,
    }
    await play.post("image", CHAT, {"messages": [*messages, said], "stream": True, **more})
    await read_run(play, "image")


@on_each_route("idempotent")
async def idempotent(route: Route, play: ScenarioRun) -> None:
    """A request that comes again, after the end and while it runs, and one with another body."""
    await make_session(play)
    play.script = SCRIPTS["rich"]
    await play.post("first", route.path, route.body, **KEY)
    await play.note_run("first")
    await play.post("again", route.path, route.body, **KEY)
    other = {
        **route.body,
        "input": "Other",
        "messages": [{"role": "user", "content": "Other"}],
        "message": "Other",
    }
    await play.post("conflict", route.path, other, **KEY)
    await play.get("run events", f"{RUNS}/{play.run_id}/events")
    play.script = held_after(5)
    async with play.open("live", "POST", route.path, route.body, Idempotency_Key="live") as live:
        await play.wait_held("here")
        async with play.open(
            "live again", "POST", route.path, route.body, Idempotency_Key="live"
        ) as again:
            if route.is_streamed:
                await again.wait_frames(len(live.frames))
            await play.get("live run", f"{RUNS}/{play.run_id}")
            play.release("here")
    await play.note_run("live")


@on_each_route("idempotent-cut")
async def idempotent_cut(route: Route, play: ScenarioRun) -> None:
    """A request with a key is cut; the same request again tells of that."""
    await make_session(play)
    play.script = held_after(5)
    async with play.open("cut", "POST", route.path, route.body, **KEY) as exchange:
        await play.wait_held("here")
        exchange.disconnect()
    await play.note_run("cut")
    await play.post("again", route.path, route.body, **KEY)
    play.script = SCRIPTS["raises"]
    for name in ("raises", "raises again"):
        await play.post(name, route.path, route.body, Idempotency_Key="raises")
    await play.note_run("raises")


@scenario("idempotent-runs")
async def idempotent_runs(play: ScenarioRun) -> None:
    """A run that is started twice with one key is one run."""
    play.script = SCRIPTS["rich"]
    await play.start("first", RUNS, INPUT, Idempotency_Key=KEY["Idempotency_Key"])
    await play.note_run("first")
    await play.post("again", RUNS, INPUT, **KEY)
    await play.post("conflict", RUNS, {"input": "Other"}, **KEY)
    await play.post("long key", RUNS, INPUT, Idempotency_Key="k" * 257)
