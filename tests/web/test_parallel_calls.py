"""Calls of one tool at the same time: on every route each event says which call it belongs to."""

from __future__ import annotations

import json
from typing import Any

from attrs import define, field

from hermes_trio.core.events import Event, Text, ToolCompleted, ToolOutput, ToolStarted
from tests.support.fakes import CHAT, AppHarness, ask_stream
from tests.support.responses_api import RESPONSES, events, idle_harness, stream
from tests.support.runs_api import Json, followed, started

# Three at once, of one tool, that print in between each other and end in another order than they
# began.
CALLS = {"c1": "make", "c2": "make", "c3": "test"}
PRINTED = {"c1": "one", "c2": "two", "c3": ""}
RESULTS = {"c1": "built", "c2": "built again", "c3": "failed"}
SCRIPT: tuple[Event, ...] = (
    Text("Now."),
    *(ToolStarted(call_id, "terminal", {"command": command}) for call_id, command in CALLS.items()),
    ToolOutput("c2", "t"), ToolOutput("c1", "on"), ToolOutput("c2", "wo"), ToolOutput("c1", "e"),
    ToolCompleted("c2", RESULTS["c2"]),
    ToolCompleted("c3", RESULTS["c3"], is_error=True),
    ToolCompleted("c1", RESULTS["c1"]),
    Text("Done."),
)  # fmt: skip


@define
class Seen:
    """What a client learns of each call, by nothing but its id."""

    args: dict[str, Any] = field(factory=dict)
    printed: dict[str, str] = field(factory=dict)
    results: dict[str, str] = field(factory=dict)

    def started(self, call_id: str, args: Any) -> None:
        assert call_id not in self.args
        self.args[call_id] = args["command"]

    def said(self, call_id: str, text: str) -> None:
        assert call_id in self.args
        assert call_id not in self.results
        self.printed[call_id] = self.printed.get(call_id, "") + text

    def ended(self, call_id: str, result: str) -> None:
        assert call_id in self.args
        assert call_id not in self.results
        self.results[call_id] = result

    def check(self) -> None:
        assert self.args == CALLS
        assert self.results == RESULTS


async def runs_events(harness: AppHarness, run_id: str) -> list[Json]:
    return [
        event for event in await followed(harness, run_id) if event["event"].startswith("tool.")
    ]


async def test_chat() -> None:
    async with idle_harness(SCRIPT) as harness:
        answer = await harness.client.send(CHAT, ask_stream())
        seen = Seen()
        progress = [frame.json for frame in answer.frames if frame.event == "hermes.tool.progress"]
        for event in progress:
            if event["status"] == "running":
                seen.started(event["toolCallId"], event["args"])
            else:
                seen.ended(event["toolCallId"], event["result"])
        seen.check()
        assert len(progress) == 6


async def test_responses() -> None:
    async with idle_harness(SCRIPT) as harness:
        seen = Seen()
        calls: dict[str, str] = {}
        for event in events(await harness.client.send(RESPONSES, stream())):
            item = event.get("item", {})
            match event["type"], item.get("type"):
                case "response.output_item.added", "function_call":
                    calls[event["item"]["id"]] = item["call_id"]
                case "response.function_call_arguments.done", _:
                    seen.started(calls[event["item_id"]], json.loads(event["arguments"]))
                case "response.output_item.done", "function_call":
                    assert calls[item["id"]] == item["call_id"]
                case "response.output_item.done", "function_call_output":
                    seen.ended(item["call_id"], "".join(part["text"] for part in item["output"]))
                case _:
                    pass
        seen.check()


async def test_runs() -> None:
    async with idle_harness(SCRIPT) as harness:
        seen = Seen()
        for event in await runs_events(harness, await started(harness)):
            match event["event"]:
                case "tool.started":
                    seen.started(event["toolCallId"], event["args"])
                case "tool.output":
                    seen.said(event["toolCallId"], event["delta"])
                case _:
                    seen.ended(event["toolCallId"], event["result"])
        seen.check()
        assert {call: seen.printed.get(call, "") for call in CALLS} == PRINTED


async def test_the_runs_routes_tell_of_a_response_in_the_same_way() -> None:
    async with idle_harness(SCRIPT) as harness:
        response = events(await harness.client.send(RESPONSES, stream()))[-1]["response"]
        of_run = await runs_events(harness, await started(harness))
        of_response = await runs_events(harness, response["id"])
        told = [(event["event"], event["toolCallId"]) for event in of_response]
        assert told == [(event["event"], event["toolCallId"]) for event in of_run]
