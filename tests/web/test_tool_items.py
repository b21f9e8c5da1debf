"""How tool calls that the server runs appear on the Responses API.

Chosen by header, by setting, by client.
"""

from __future__ import annotations

from typing import Any

import pytest

from hermes_trio.core.dialects.responses_items import ToolItems
from hermes_trio.web.state import WebOptions
from tests.support.fakes import AppHarness
from tests.support.responses_api import CONVERSATIONS, RESPONSES, RICH, idle_harness
from tests.support.sse import parse_sse

HEADER = "X-Hermes-Tool-Items"
FORMS = {"function_call": 2, "mcp_call": 2, "hidden": 0}  # how many calls of RICH each shows
ASK = {"input": "Hi"}


def kinds(output: list[dict[str, Any]]) -> set[str]:
    return {item["type"] for item in output} - {"message", "reasoning"}


async def kinds_for(harness: AppHarness, headers: dict[str, str]) -> set[str]:
    answer = await harness.client.send(RESPONSES, ASK, {HEADER: "", **headers})
    assert answer.status == 200
    return kinds(answer.json["output"])


@pytest.mark.parametrize("form", list(ToolItems))
async def test_the_header_chooses(form: str) -> None:
    async with idle_harness(RICH) as harness:
        answer = await harness.client.send(RESPONSES, ASK, {HEADER: form.upper()})
        output = answer.json["output"]
        assert sum(item["type"] == form for item in output) == FORMS[form]
        assert (
            kinds(output)
            == {
                "function_call": {"function_call", "function_call_output"},
                "mcp_call": {"mcp_call"},
                "hidden": set(),
            }[form]
        )
        # Whoever reads it later sees the same.
        stored = await harness.client.get(f"{RESPONSES}/{answer.json['id']}")
        assert stored.json["output"] == output


@pytest.mark.parametrize("form", list(ToolItems))
async def test_a_stream_and_its_replay_have_the_same_form(form: str) -> None:
    async with idle_harness(RICH) as harness:
        answer = await harness.client.send(RESPONSES, {**ASK, "stream": True}, {HEADER: form})
        final = parse_sse(answer.body)[-2].json["response"]
        assert sum(item["type"] == form for item in final["output"]) == FORMS[form]
        again = await harness.client.get(
            f"{RESPONSES}/{final['id']}?stream=true", {HEADER: "hidden"}
        )
        assert again.body == answer.body


async def test_an_unknown_form_is_refused() -> None:
    async with idle_harness(RICH) as harness:
        answer = await harness.client.send(RESPONSES, ASK, {HEADER: "both"})
        assert answer.status == 400
        assert (answer.error["param"], answer.error["code"]) == (HEADER, "invalid_tool_items")
        assert harness.agents.turns == []


@pytest.mark.parametrize(
    "headers",
    [
        {"X-OpenWebUI-Chat-Id": "1"},
        {"User-Agent": "Open WebUI (https://openwebui.com)"},
        {"X-Hermes-Session-Key": "me"},
    ],
)
async def test_clients_that_show_calls_as_cards_get_both_items(headers: dict[str, str]) -> None:
    async with idle_harness(RICH) as harness:
        assert await kinds_for(harness, headers) == {"function_call", "function_call_output"}


@pytest.mark.parametrize(
    "agent", ["", "OpenAI/Python 3.0.1", "Agents/JS 0.20.0", "codex_cli_rs/0.169.0"]
)
async def test_other_clients_get_no_call_that_they_would_run(agent: str) -> None:
    async with idle_harness(RICH) as harness:
        assert await kinds_for(harness, {"User-Agent": agent}) == {"mcp_call"}


async def test_the_setting_holds_for_clients_that_do_not_choose() -> None:
    async with idle_harness(RICH, options=WebOptions(tool_items="hidden")) as harness:
        assert await kinds_for(harness, {"X-OpenWebUI-Chat-Id": "1"}) == set()
        assert await kinds_for(harness, {HEADER: "mcp_call"}) == {"mcp_call"}


async def test_a_conversation_goes_on_from_server_calls() -> None:
    async with idle_harness(RICH) as harness:
        made = await harness.client.send(CONVERSATIONS, {})
        turn = {**ASK, "conversation": made.json["id"]}
        await harness.client.send(RESPONSES, turn, {HEADER: "mcp_call"})
        items = await harness.client.get(f"{CONVERSATIONS}/{made.json['id']}/items?order=asc")
        assert [item["type"] for item in items.json["data"]] == [
            "message", "reasoning", "message", "mcp_call", "mcp_call", "message",
        ]  # fmt: skip
        await harness.client.send(RESPONSES, turn, {HEADER: "mcp_call"})
        history = harness.agents.turns[1].history
        assert [message.role for message in history] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "assistant",
        ]
        assert [message.content for message in history if message.role == "tool"] == [
            "built",
            "contents",
        ]
        assert [call.name for call in history[1].tool_calls] == ["terminal", "read_file"]


async def test_the_output_can_be_sent_back_as_input() -> None:
    async with idle_harness(RICH) as harness:
        answer = await harness.client.send(RESPONSES, ASK, {HEADER: "mcp_call"})
        sent = ["Hi", *answer.json["output"], {"role": "user", "content": "go on"}]
        assert (await harness.client.send(RESPONSES, {"input": sent})).status == 200
        history = harness.agents.turns[1].history
        assert [message.role for message in history] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "assistant",
        ]
