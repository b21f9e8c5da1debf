"""Read the stream of a run, and check all its rules."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

from hermes_trio.core.records import RunHeader, Stamp
from hermes_trio.runs.recovery import SKIPPED

Json = dict[str, Any]

HEADER = RunHeader("default", Stamp("run_1", 1_700_000_000.5, "hermes-agent"), "runs", "s-1", ())
TERMINAL = {"run.completed", "run.failed", "run.cancelled"}
CLOSED = ": stream closed"
FRAME = re.compile(r"id: (0|[1-9][0-9]*)\ndata: (\{.*\})")
APPROVAL_REQUEST = {
    "approval_id",
    "toolCallId",
    "command",
    "description",
    "pattern_key",
    "pattern_keys",
    "allow_permanent",
    "choices",
    "timeout",
}
_FIELDS = {
    "run.started": set(),
    "message.delta": {"delta"},
    "reasoning.delta": {"delta"},
    "tool.started": {"tool", "preview", "toolCallId", "args"},
    "tool.output": {"toolCallId", "delta"},
    "tool.completed": {"tool", "toolCallId", "duration", "error", "result", "status"},
    "tool.handed_over": {"tool", "toolCallId", "arguments"},
    "approval.request": APPROVAL_REQUEST,
    "approval.responded": {"approval_id", "toolCallId", "choice", "resolved", "by"},
    "run.completed": {"output", "usage"},
    "run.failed": {"error", "reason"},
    "run.cancelled": {"reason"},
}
_HEAD = {"event", "run_id", "timestamp", "seq"}


def event_of(block: str) -> Json:
    """Return the event of one frame, which has only an id and data."""
    found = FRAME.fullmatch(block)
    assert found is not None, block
    event: Json = json.loads(found[2])
    assert event["seq"] == int(found[1])
    assert set(event) - {"incomplete", "reason"} == _HEAD | _FIELDS[event["event"]] - {"reason"}
    return event


def blocks_of(stream: bytes) -> list[str]:
    """Return the frames and comments of a stream, all complete."""
    text = stream.decode("ascii")
    assert text == "" or text.endswith("\n\n")
    return text.split("\n\n")[:-1]


def events_of(stream: bytes) -> list[Json]:
    """Return the events of a stream, without comments.

    Their numbers have no gap, except for the numbers that recovery skips.
    """
    blocks = [block for block in blocks_of(stream) if not block.startswith(":")]
    events = [event_of(block) for block in blocks]
    gaps = {after["seq"] - before["seq"] - 1 for before, after in pairwise(events)}
    assert gaps <= {0, SKIPPED.count}
    return events


def check_whole(stream: bytes) -> list[Json]:
    """Return the events of a whole stream, and check them against all rules."""
    events = events_of(stream)
    assert blocks_of(stream)[-1] == CLOSED
    assert stream.count(CLOSED.encode()) == 1
    assert (events[0]["event"], events[0]["seq"]) == ("run.started", 0)
    assert len({event["run_id"] for event in events}) == 1
    times = [event["timestamp"] for event in events]
    assert times == sorted(times)
    assert [event["event"] in TERMINAL for event in events] == [False] * (len(events) - 1) + [True]
    _check_calls(events)
    return events


def _check_calls(events: list[Json]) -> None:
    """Check that each call starts once and ends once, and has output only in between."""
    running: set[str] = set()
    ever: set[str] = set()
    for event in events:
        match event["event"]:
            case "tool.started":
                assert event["toolCallId"] not in ever
                running.add(event["toolCallId"])
                ever.add(event["toolCallId"])
            case "tool.output":
                assert event["toolCallId"] in running
            case "tool.completed":
                running.remove(event["toolCallId"])
                assert event["status"] in {"completed", "cancelled"}
            case _:
                pass
    assert not running
