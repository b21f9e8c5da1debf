"""Requests that are refused, and what the server tells of itself."""

from __future__ import annotations

from typing import Any

from tests.golden.agent import say
from tests.golden.dialects import (
    CHAT,
    HI,
    INPUT,
    MESSAGE,
    RESPONSES,
    RUNS,
    SESSIONS,
)
from tests.golden.flows import (
    make_session,
    scenario,
)
from tests.golden.scenario_run import ScenarioRun
from tests.golden.scripts import SCRIPTS, SHELL

CONVERSATIONS = "/v1/conversations"
BOB = "Bearer key-of-bob-0123456789"


@scenario("errors")
async def errors(play: ScenarioRun) -> None:
    """Requests that are refused before anything runs."""
    posts = (CHAT, RESPONSES, RUNS, f"{SESSIONS}/golden/chat", f"{SESSIONS}/golden/chat/stream")
    await make_session(play)
    play.script = SCRIPTS["plain"]
    whole = {**HI, **INPUT, **MESSAGE}
    for path in posts:
        await play.post("no body", path)
        await play.post("bad JSON", path, b"{")
        await play.post("not UTF-8", path, b'{"input": "\xff"}')
        await play.post("no object", path, b"[]")
        await play.post("empty object", path, {})
        await play.send("wrong method", "PUT", path)
        await play.post("no key", path, INPUT, Authorization="")
        await play.post("wrong key", path, INPUT, Authorization="Bearer wrong-key-0123456789")
        await play.post("basic", path, INPUT, Authorization="Basic YTpi")
        if path in {RESPONSES, *posts[3:]}:  # the others do not look at it
            await play.post("bad policy", path, whole, X_Hermes_On_Disconnect="maybe")
        await play.post("bad session", path, whole, X_Hermes_Session_Id="../etc")
        await play.post("announced too large", path, b"{}", Content_Length="10000001")
        await play.post("odd length", path, b"{}", Content_Length="many")
        await play.post("foreign origin", path, whole, Origin="https://evil.test")
    await play.post("too large", CHAT, b" " * 10_000_001)


@scenario("errors-fields")
async def errors_fields(play: ScenarioRun) -> None:
    """Fields that are wrong, by name."""
    chats: list[dict[str, Any]] = [
        {"messages": []},
        {"messages": "Hi"},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "robot", "content": "Hi"}]},
        {"messages": [{"role": "user", "content": [{"type": "video"}]}]},
        {**HI, "n": 2},
        {**HI, "max_tokens": 0},
        {**HI, "model": 7},
        {**HI, "temperature": "hot"},
    ]
    common: list[dict[str, Any]] = [
        {"input": None},
        {"input": []},
        {"input": [{"type": "odd"}]},
        {"input": [{"role": "robot", "content": "Hi"}]},
        {"metadata": {"key": 1}},
        {"previous_response_id": "x" * 257},
    ]
    of_responses: list[dict[str, Any]] = [
        {"temperature": 3},
        {"top_logprobs": 21},
        {"max_output_tokens": 0},
        {"tools": [{}]},
        {"truncation": "odd"},
        {"conversation": 7},
    ]
    for body in chats:
        await play.post("chat", CHAT, body)
    for more in (*common, *of_responses):
        await play.post("responses", RESPONSES, {**INPUT, **more})
    for more in (*common, {"session_id": "a/b"}, {"session_id": "a\n"}):
        await play.post("runs", RUNS, {**INPUT, **more})


@scenario("errors-not-found")
async def errors_not_found(play: ScenarioRun) -> None:
    """What is not there, and what does not take a method."""
    for path in (
        "/nothing",
        "/v1/nothing",
        f"{RESPONSES}/resp_none",
        f"{RESPONSES}/resp_none?stream=true",
        f"{RESPONSES}/resp_none/input_items",
        f"{RUNS}/run_none",
        f"{RUNS}/run_none/events",
        f"{SESSIONS}/none",
        f"{SESSIONS}/none/messages",
        f"{SESSIONS}/none/chat/stream",
        f"{SESSIONS}/none/chat/stream?run_id=run_none",
        f"{CONVERSATIONS}/conv_none",
        f"{CONVERSATIONS}/conv_none/items",
        "/v1/models/none",
        "/p/nobody/v1/models",
        CHAT,
    ):
        await play.get("get", path)
    await play.post("cancel", f"{RESPONSES}/resp_none/cancel")
    await play.post("stop", f"{RUNS}/run_none/stop")
    await play.send("delete", "DELETE", f"{RESPONSES}/resp_none")
    await play.send("delete", "DELETE", "/v1/approvals")
    await play.send("delete", "DELETE", "/v1/approvals?pattern=none")
    await play.send("wrong method", "PATCH", "/v1/models")
    play.script = say(
        ("text", "Mine."), ("tool_started", "c1", "terminal", SHELL), ("tool_completed", "c1")
    )
    await play.post("mine", RESPONSES, INPUT)
    await play.get("of somebody else", f"{RESPONSES}/{play.run_id}", Authorization=BOB)
    await play.get("of somebody else", f"{RUNS}/{play.run_id}/events", Authorization=BOB)
    for path in (
        f"{RESPONSES}/{play.run_id}?stream=true&starting_after=x",
        f"{RUNS}/{play.run_id}/events?last_seq=x",
    ):
        await play.get("bad number", path)
    await play.get("bad header", f"{RUNS}/{play.run_id}/events", Last_Event_ID="-2")


@scenario("info")
async def info(play: ScenarioRun) -> None:
    """What the server tells of itself, as far as it does not change with every version."""
    for path in ("/health/ready", "/v1/models", "/v1/models/hermes-agent", "/v1/capabilities"):
        await play.get("get", path)
    await play.get("without a key", "/health/ready", Authorization="")
    await play.send("preflight", "OPTIONS", CHAT, None, Origin="https://evil.test")
