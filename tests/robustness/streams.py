"""What a client received of one stream, in terms that all dialects share.

A stream may have been cut at any byte; an incomplete event does not count. Only the form of complete
events is checked here; ``invariants.py`` checks the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from attrs import frozen

Json = dict[str, Any]
ALL = frozenset({"completed", "incomplete", "cancelled", "failed"})


class Dialect(StrEnum):
    """The dialects that are streamed."""

    CHAT = "chat"
    RESPONSES = "responses"
    RUNS = "runs"
    SESSION = "session"


@frozen
class WireEvent:
    """One event in its wire form."""

    name: str
    data: Json


@frozen
class EventFacts:
    """The facts in one event."""

    text: str = ""
    started: str = ""  # the call that begins
    ended: str = ""  # the call that ends
    asked: str = ""  # the question that begins to wait
    answered: str = ""  # the question that has its answer
    end: frozenset[str] = frozenset()  # the run ends, in one of these states


NOTHING = EventFacts()


@frozen
class ReceivedStream:
    """The received part of a stream."""

    dialect: Dialect
    run_id: str
    numbers: tuple[int, ...]  # of its events, where the dialect has them
    facts: tuple[EventFacts, ...]
    is_closed: bool  # the mark of the end came

    @property
    def text(self) -> str:
        """All visible text."""
        return "".join(each.text for each in self.facts)

    @property
    def ends(self) -> tuple[frozenset[str], ...]:
        """The events that announce the run's end."""
        return tuple(each.end for each in self.facts if each.end)


def read_stream(dialect: Dialect, raw: bytes) -> ReceivedStream:
    """Parse the bytes of a stream that may be cut anywhere."""
    blocks = [block for block in raw.split(b"\n\n")[:-1] if not block.startswith(b":")]
    closed = _CLOSED.get(dialect, b"\0") in raw
    events = [_event(block) for block in blocks if block != b"data: [DONE]"]
    facts = tuple(_READERS[dialect](event) for event in events)
    run_id = next((found for event in events if (found := _run_id(event.data))), "")
    numbers = tuple(_number(event.data) for event in events if _number(event.data) >= 0)
    if dialect is Dialect.SESSION:
        closed = any(event.name == "done" for event in events)
    return ReceivedStream(dialect, run_id, numbers, facts, closed)


_CLOSED = {
    Dialect.CHAT: b"data: [DONE]\n\n",
    Dialect.RESPONSES: b"data: [DONE]\n\n",
    Dialect.RUNS: b": stream closed\n\n",
}


def _event(block: bytes) -> WireEvent:
    fields = dict(_fields(block.decode("utf-8").split("\n")))
    return WireEvent(fields.get("event", ""), json.loads(fields["data"]))


def _fields(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, _, value = line.partition(": ")
        yield name, value


def _run_id(data: Json) -> str:
    return str(data.get("response", {}).get("id") or data.get("run_id") or data.get("id") or "")


def _number(data: Json) -> int:
    number: int = data["sequence_number"] if "sequence_number" in data else data.get("seq", -1)
    return number


def _of_chat(event: WireEvent) -> EventFacts:
    if "toolCallId" in event.data:
        return _call(event.data["toolCallId"], event.data["status"] == "running")
    if "approval" in event.data:
        return _question(event.data["approval"], event.name == "hermes.approval.request")
    if "error" in event.data:
        assert set(event.data) == {"error"}, event
        return NOTHING
    for choice in event.data["choices"]:
        finish = choice["finish_reason"]
        return EventFacts(
            choice["delta"].get("content", ""), end=_CHAT_ENDS[finish] if finish else frozenset()
        )
    return NOTHING


_CHAT_ENDS = {
    "stop": frozenset({"completed", "cancelled"}),
    "tool_calls": frozenset({"completed"}),
    "length": frozenset({"incomplete"}),
    "error": frozenset({"incomplete", "failed"}),
}


CALL_TYPES = frozenset({"function_call", "mcp_call"})


def shown_call_id(item: Mapping[str, Any]) -> str:
    """The id by which a response shows a call: an ``mcp_call`` has none but its own."""
    return str(item.get("call_id") or item["id"])


def _of_responses(event: WireEvent) -> EventFacts:
    data = event.data
    assert event.name == data["type"], event
    match event.name:
        case "response.output_text.delta":
            return EventFacts(data["delta"])
        case "response.output_item.added" if data["item"]["type"] in CALL_TYPES:
            return EventFacts(started=shown_call_id(data["item"]))
        case "response.output_item.done" if data["item"]["type"] in CALL_TYPES:
            return EventFacts(ended=shown_call_id(data["item"]))
        case "response.completed" | "response.incomplete" | "response.failed":
            return EventFacts(end=frozenset({data["response"]["status"]}))
        case _:
            return NOTHING


def _of_runs(event: WireEvent) -> EventFacts:
    data = event.data
    match data["event"]:
        case "message.delta":
            return EventFacts(data["delta"])
        case "tool.started" | "tool.completed":
            return _call(data["toolCallId"], data["event"] == "tool.started")
        case "approval.request" | "approval.responded":
            return _question(data, data["event"] == "approval.request")
        case "run.completed":
            return EventFacts(
                end=frozenset({"incomplete" if data.get("incomplete") else "completed"})
            )
        case "run.cancelled":
            has_left = data["reason"] == "client_disconnected"
            return EventFacts(end=frozenset({"incomplete" if has_left else "cancelled"}))
        case "run.failed":
            return EventFacts(end=frozenset({"failed", "incomplete"}))
        case _:
            return NOTHING


def _of_session(event: WireEvent) -> EventFacts:
    data = event.data
    match event.name:
        case "assistant.delta":
            return EventFacts(data["delta"])
        case "tool.started" | "tool.completed":
            return _call(data["toolCallId"], event.name == "tool.started")
        case "approval.request" | "approval.responded":
            return _question(data, event.name == "approval.request")
        case "run.completed" if data["completed"]:
            return EventFacts(end=frozenset({"completed"}))
        case "run.completed" | "error":
            return EventFacts(
                end=frozenset({"cancelled"})
                if data["interrupted"]
                else ALL - {"completed", "cancelled"}
            )
        case _:
            return NOTHING


def _question(data: Json, begins: bool) -> EventFacts:
    return (
        EventFacts(asked=data["approval_id"])
        if begins
        else EventFacts(answered=data["approval_id"])
    )


def _call(call_id: str, starts: bool) -> EventFacts:
    return EventFacts(started=call_id) if starts else EventFacts(ended=call_id)


_READERS: Mapping[Dialect, Callable[[WireEvent], EventFacts]] = {
    Dialect.CHAT: _of_chat,
    Dialect.RESPONSES: _of_responses,
    Dialect.RUNS: _of_runs,
    Dialect.SESSION: _of_session,
}
