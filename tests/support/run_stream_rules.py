"""Reading the stream of a run as strictly as its rules are."""

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
    """The event of one frame, which has an id, data and nothing else."""
    found = FRAME.fullmatch(block)
    assert found is not None, block
    event: Json = json.loads(found[2])
    assert event["seq"] == int(found[1])
    assert set(event) - {"incomplete", "reason"} == _HEAD | _FIELDS[event["event"]] - {"reason"}
    return event


def blocks_of(stream: bytes) -> list[str]:
    """The frames and comments of a stream, each of them whole."""
    text = stream.decode("ascii")
    assert text == "" or text.endswith("\n\n")
    return text.split("\n\n")[:-1]


def events_of(stream: bytes) -> list[Json]:
    """The events of a stream; comments are left out.

    They are in one row without a gap, except for the numbers that recovery skips.
    """
    blocks = [block for block in blocks_of(stream) if not block.startswith(":")]
    events = [event_of(block) for block in blocks]
    gaps = {after["seq"] - before["seq"] - 1 for before, after in pairwise(events)}
    assert gaps <= {0, SKIPPED.count}
    return events


def check_whole(stream: bytes) -> list[Json]:
    """The events of a stream from the first to the last, held against all rules."""
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
    """Each call is told once when it starts and once when it ends, and speaks only in between."""
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
