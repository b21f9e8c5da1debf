"""The rules of the strictest client, the stream helper of the JavaScript SDK."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from attrs import define, field

from hermes_trio.core.records import RunHeader, Stamp
from tests.support.dialect_frames import parse

Json = dict[str, Any]


HEADER = RunHeader(
    "default", Stamp("resp_1", 1_700_000_000.5, "hermes-agent"), "responses", "s-1", ()
)


TERMINAL = {"response.completed", "response.incomplete", "response.failed"}


ITEM_TYPES = {
    "response.content_part.added": "message",
    "response.content_part.done": "message",
    "response.output_text.delta": "message",
    "response.output_text.done": "message",
    "response.function_call_arguments.delta": "function_call",
    "response.function_call_arguments.done": "function_call",
    "response.mcp_call.in_progress": "mcp_call",
    "response.mcp_call.completed": "mcp_call",
    "response.mcp_call.failed": "mcp_call",
    "response.mcp_call_arguments.delta": "mcp_call",
    "response.mcp_call_arguments.done": "mcp_call",
    "response.reasoning_summary_part.added": "reasoning",
    "response.reasoning_summary_part.done": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_summary_text.done": "reasoning",
}


def events_of(stream: bytes) -> list[Json]:
    """Return the events of a whole stream; each frame is named after its event and ``[DONE]`` is last."""
    frames = parse(stream)
    assert frames[-1].data == "[DONE]"
    for frame in frames[:-1]:
        assert frame.name == frame.data["type"]
    return [frame.data for frame in frames[:-1]]


@define
class Reader:
    """Accumulates a stream, and fails where the helper would throw."""

    response_id: str = ""
    items: list[Json] = field(factory=list)
    open: set[int] = field(factory=set)
    identities: set[tuple[str, str]] = field(factory=set)
    final: Json = field(factory=dict)

    def read(self, events: list[Json]) -> Reader:
        assert events[0]["type"] == "response.created"
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        for event in events:
            assert not self.final, "nothing follows the terminal event"
            self._take(event)
        assert self.final, "a terminal event came"
        return self

    def _take(self, event: Json) -> None:
        kind = event["type"]
        if kind in TERMINAL | {"response.created", "response.in_progress"}:
            self._lifecycle(event)
        elif kind == "response.output_item.added":
            self._added(event)
        elif kind == "response.output_item.done":
            self._done(event)
        else:
            self._inside(event)

    def _lifecycle(self, event: Json) -> None:
        response = event["response"]
        self.response_id = self.response_id or response["id"]
        assert response["id"] == self.response_id
        if event["type"] in TERMINAL:
            assert not self.open, "items are left open"
            assert response["output"] == self.items
            self.final = response
        else:
            assert (response["status"], response["output"]) == ("in_progress", self.items)

    def _added(self, event: Json) -> None:
        item = deepcopy(event["item"])
        assert event["output_index"] == len(self.items)
        assert item["id"]
        identity = {("id", item["id"])}
        if item["type"] == "function_call":
            assert item["call_id"]
            assert item["arguments"] == ""
            identity.add(("call", item["call_id"]))
        assert not identity & self.identities
        self.identities |= identity
        self.open.add(len(self.items))
        self.items.append(item)

    def _done(self, event: Json) -> None:
        index, item = event["output_index"], event["item"]
        self.open.remove(index)
        before = self.items[index]
        assert all(
            before.get(key) == item.get(key) for key in ("id", "type", "call_id", "name", "role")
        )
        ends = {"output", "error"} if item["type"] == "mcp_call" else set()
        added_up = {**before, **{key: item[key] for key in {"status", *ends} & item.keys()}}
        assert added_up == item, "done says what the deltas added up to"
        statuses = {"completed", "incomplete"} | ({"failed"} if ends else set())
        assert item["type"] == "mcp_approval_request" or item["status"] in statuses
        self.items[index] = item

    def _inside(self, event: Json) -> None:
        assert event["output_index"] in self.open, "only open items change"
        item = self.items[event["output_index"]]
        assert event["item_id"] == item["id"]
        assert item["type"] == ITEM_TYPES[event["type"]]
        if "arguments" in event["type"]:
            self._arguments(event, item)
        elif item["type"] == "mcp_call":
            pass  # these events say only how far the call is
        else:
            key = "content" if item["type"] == "message" else "summary"
            self._part(event, item[key], event[f"{key}_index"])

    def _arguments(self, event: Json, item: Json) -> None:
        if event["type"].endswith(".delta"):
            item["arguments"] += event["delta"]
        else:
            assert event["arguments"] == item["arguments"]

    def _part(self, event: Json, parts: list[Json], index: int) -> None:
        if event["type"].endswith("part.added"):
            assert index == len(parts)
            parts.append(deepcopy(event["part"]))
        elif event["type"].endswith(".delta"):
            assert event["delta"]
            parts[index]["text"] += event["delta"]
        elif event["type"].endswith("part.done"):
            assert event["part"] == parts[index]
        else:
            assert event["text"] == parts[index]["text"]
