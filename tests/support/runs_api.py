"""Start runs, and read their status and events."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from hermes_trio.schema import replies
from tests.support.asgi import HttpResponse, real_timeout
from tests.support.fakes import AppHarness
from tests.support.run_stream_rules import check_whole

RUNS = "/v1/runs"
Json = dict[str, Any]


async def started(
    harness: AppHarness, text: object = "Hi", /, headers: dict[str, str] | None = None, **more: Any
) -> str:
    """Start a run; returns its id."""
    return run_id_of(await harness.client.send(RUNS, {"input": text, **more}, headers or {}))


def run_id_of(answer: HttpResponse) -> str:
    """Return the id of a run that was just started."""
    assert answer.status == 202, answer.body
    told = msgspec.convert(answer.json, replies.RunStarted)
    assert set(answer.json) == {"run_id", "status"}
    assert re.fullmatch(r"run_[0-9a-f]{32}", told.run_id)
    return told.run_id


async def shown(harness: AppHarness, run_id: str) -> Json:
    """Return a run in its current state."""
    answer = await harness.client.get(f"{RUNS}/{run_id}")
    assert answer.status == 200, answer.body
    msgspec.convert(answer.json, replies.RunReply)
    return dict(answer.json)


async def stopped(harness: AppHarness, run_id: str) -> str:
    """Stop a run; return the status in the reply."""
    answer = await harness.client.get(f"{RUNS}/{run_id}/stop", method="POST")
    assert answer.status == 200, answer.body
    told = msgspec.convert(answer.json, replies.RunStopped)
    assert set(answer.json) == {"run_id", "status"}
    assert told.run_id == run_id
    return told.status


async def followed(harness: AppHarness, run_id: str) -> list[Json]:
    """Return all events of a run, to its end."""
    with real_timeout():
        answer = await harness.client.get(f"{RUNS}/{run_id}/events")
    assert answer.status == 200, answer.body
    events = check_whole(answer.body)
    for event in events:
        msgspec.convert(event, replies.RunEvent)
        assert event["run_id"] == run_id
    return events


def kinds(events: list[Json]) -> list[str]:
    """Return the kinds of events."""
    return [event["event"] for event in events]
