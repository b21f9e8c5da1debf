"""What a client got of one stream, in terms that all dialects share.

A stream may have been cut at any byte: what is no whole event does not count. Nothing is asserted here but the form of
what is whole; ``invariants.py`` says what must hold of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from attrs import frozen

Json = dict[str, Any]
ALL = frozenset({"completed", "incomplete", "cancelled", "failed"})


class Wire(StrEnum):
    """The dialects that are streamed."""

    CHAT = "chat"
    RESPONSES = "responses"
    RUNS = "runs"
    SESSION = "session"


@frozen
class Event:
    """One event as it stood on the wire."""

    name: str
    data: Json


@frozen
class Told:
    """What one event tells, if anything."""

    text: str = ""
    started: str = ""  # the call that begins
    ended: str = ""  # the call that ends
    asked: str = ""  # the question that begins to wait
    answered: str = ""  # the question that has its answer
    end: frozenset[str] = frozenset()  # the run ends, in one of these states


NOTHING = Told()


@frozen
class Heard:
    """A stream, as far as it went."""

    wire: Wire
    run_id: str
    numbers: tuple[int, ...]  # of its events, where the dialect has them
    told: tuple[Told, ...]
    is_closed: bool  # the mark of the end came

    @property
    def text(self) -> str:
        """All visible text."""
        return "".join(each.text for each in self.told)

    @property
    def ends(self) -> tuple[frozenset[str], ...]:
        """Each telling of the run's end."""
        return tuple(each.end for each in self.told if each.end)


def hear(wire: Wire, raw: bytes) -> Heard:
    """Read the bytes of a stream that may be cut anywhere."""
    blocks = [block for block in raw.split(b"\n\n")[:-1] if not block.startswith(b":")]
    closed = _CLOSED.get(wire, b"\0") in raw
    events = [_event(block) for block in blocks if block != b"data: [DONE]"]
    told = tuple(_READERS[wire](event) for event in events)
    run_id = next((found for event in events if (found := _run_id(event.data))), "")
    numbers = tuple(_number(event.data) for event in events if _number(event.data) >= 0)
    if wire is Wire.SESSION:
        closed = any(event.name == "done" for event in events)
    return Heard(wire, run_id, numbers, told, closed)


_CLOSED = {
    Wire.CHAT: b"data: [DONE]\n\n",
    Wire.RESPONSES: b"data: [DONE]\n\n",
    Wire.RUNS: b": stream closed\n\n",
}


def _event(block: bytes) -> Event:
    fields = dict(_fields(block.decode("utf-8").split("\n")))
    return Event(fields.get("event", ""), json.loads(fields["data"]))


def _fields(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, _, value = line.partition(": ")
        yield name, value


def _run_id(data: Json) -> str:
    return str(data.get("response", {}).get("id") or data.get("run_id") or data.get("id") or "")


def _number(data: Json) -> int:
    number: int = data["sequence_number"] if "sequence_number" in data else data.get("seq", -1)
    return number


def _of_chat(event: Event) -> Told:
    if "toolCallId" in event.data:
        return _call(event.data["toolCallId"], event.data["status"] == "running")
    if "approval" in event.data:
        return _question(event.data["approval"], event.name == "hermes.approval.request")
    for choice in event.data["choices"]:
        finish = choice["finish_reason"]
        return Told(choice["delta"].get("content", ""), end=_CHAT_ENDS[finish] if finish else frozenset())
    return NOTHING


_CHAT_ENDS = {
    "stop": frozenset({"completed", "cancelled"}),
    "tool_calls": frozenset({"completed"}),
    "length": frozenset({"incomplete"}),
    "error": frozenset({"incomplete", "failed"}),
}


def _of_responses(event: Event) -> Told:
    data = event.data
    assert event.name == data["type"], event
    match event.name:
        case "response.output_text.delta":
            return Told(data["delta"])
        case "response.output_item.added" if data["item"]["type"] == "function_call":
            return Told(started=data["item"]["call_id"])
        case "response.output_item.done" if data["item"]["type"] == "function_call":
            return Told(ended=data["item"]["call_id"])
        case "response.completed" | "response.incomplete" | "response.failed":
            return Told(end=frozenset({data["response"]["status"]}))
        case _:
            return NOTHING


def _of_runs(event: Event) -> Told:
    data = event.data
    match data["event"]:
        case "message.delta":
            return Told(data["delta"])
        case "tool.started" | "tool.completed":
            return _call(data["toolCallId"], data["event"] == "tool.started")
        case "approval.request" | "approval.responded":
            return _question(data, data["event"] == "approval.request")
        case "run.completed":
            return Told(end=frozenset({"incomplete" if data.get("incomplete") else "completed"}))
        case "run.cancelled":
            return Told(end=frozenset({"cancelled"}))
        case "run.failed":
            return Told(end=frozenset({"failed", "incomplete"}))
        case _:
            return NOTHING


def _of_session(event: Event) -> Told:
    data = event.data
    match event.name:
        case "assistant.delta":
            return Told(data["delta"])
        case "tool.started" | "tool.completed":
            return _call(data["toolCallId"], event.name == "tool.started")
        case "approval.request" | "approval.responded":
            return _question(data, event.name == "approval.request")
        case "run.completed" if data["completed"]:
            return Told(end=frozenset({"completed"}))
        case "run.completed" | "error":
            return Told(
                end=frozenset({"cancelled"}) if data["interrupted"] else ALL - {"completed", "cancelled"}
            )
        case _:
            return NOTHING


def _question(data: Json, begins: bool) -> Told:
    return Told(asked=data["approval_id"]) if begins else Told(answered=data["approval_id"])


def _call(call_id: str, starts: bool) -> Told:
    return Told(started=call_id) if starts else Told(ended=call_id)


_READERS: Mapping[Wire, Callable[[Event], Told]] = {
    Wire.CHAT: _of_chat,
    Wire.RESPONSES: _of_responses,
    Wire.RUNS: _of_runs,
    Wire.SESSION: _of_session,
}
