"""The history of the metrics: recorded by the clock, of all workers, and read over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from attrs import evolve
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.access import Access
from hermes_trio.core.events import Result, Text
from hermes_trio.core.messages import Usage
from hermes_trio.core.metric_history import MetricHistory, Reading
from hermes_trio.keys import Keyring, NamedKey
from hermes_trio.schema import replies
from hermes_trio.web.api.metric_history import parse_reading, record_history
from hermes_trio.web.app import attach_state
from hermes_trio.web.workers import WorkerReport, Workers, silent
from tests.support.asgi import real_timeout
from tests.support.fakes import CHAT, EPOCH, KEY, AppHarness, ask, make_harness
from tests.web.test_info import described
from tests.web.test_workers import SECOND

HISTORY = "/api/metrics/history"


class WatchedHistory(MetricHistory):
    """A history whose test waits for what is added."""

    def __init__(self) -> None:
        super().__init__()
        self._added, self._additions = trio.open_memory_channel[None](100)

    def add(self, reading: Reading, at: float, elapsed: float) -> None:
        """Add a reading, and report it."""
        super().add(reading, at, elapsed)
        self._added.send_nowait(None)

    async def wait_added(self) -> None:
        """Wait until a reading was added, and the task that reads sleeps again."""
        with real_timeout():
            await self._additions.receive()
            await wait_all_tasks_blocked()


def watched(harness: AppHarness, *reports: WorkerReport) -> tuple[AppHarness, WatchedHistory]:
    """The same server with a history that is watched; with workers if any of them reports."""

    async def collect() -> Sequence[WorkerReport]:
        return reports

    history = WatchedHistory()
    health = evolve(harness.state.health, workers=Workers(1, collect) if reports else None)
    state = evolve(harness.state, history=history, health=health)
    attach_state(harness.app, state)
    return evolve(harness, state=state), history


async def fetch(harness: AppHarness, query: str = "") -> dict[str, Any]:
    shown: dict[str, Any] = described(
        await harness.client.get(f"{HISTORY}{query}"), replies.MetricHistoryReply
    )
    return shown


async def test_a_sample_every_ten_seconds(mock_clock: MockClock) -> None:
    harness, history = watched(
        make_harness(
            [Text("x")],
            Result(usage=Usage(3, 40)),
            wall_clock=lambda: EPOCH + trio.current_time(),
        )
    )
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(record_history, harness.state)
        await history.wait_added()
        assert (await fetch(harness))["data"] == []
        await harness.client.send(CHAT, ask())
        for _ in range(2):
            mock_clock.jump(10)
            await history.wait_added()
        shown = await fetch(harness)
        nursery.cancel_scope.cancel()
    first, second = shown["data"]
    assert (first["at"], second["at"]) == (EPOCH + began + 10, EPOCH + began + 20)
    assert (first["output_tokens_per_second"], second["output_tokens_per_second"]) == (4, 0)
    assert first["requests_per_second"] == 0.2  # the chat, and the request for the history
    assert 0 <= first["latency_p50"] <= first["latency_p99"]
    assert first["memory_bytes"] > 1_000_000
    assert first["store_p50"] is None
    (chat,) = [route for route in shown["routes"] if route["route"] == CHAT]
    assert (chat["requests"], chat["errors"]) == (1, 0)
    later = await fetch(harness, f"?after={first['at']}")
    assert [sample["at"] for sample in later["data"]] == [second["at"]]


@pytest.mark.parametrize("after", ["soon", "nan", "inf"])
async def test_a_time_that_is_none_is_refused(after: str) -> None:
    answer = await make_harness().client.get(f"{HISTORY}?after={after}")
    assert (answer.status, answer.error["param"]) == (400, "after")


async def test_it_needs_the_scope_of_the_metrics() -> None:
    for routes, status in (("metrics", 200), ("health", 403)):
        access = Access(routes=frozenset({routes}))
        harness = make_harness(keyring=Keyring((NamedKey("ann", KEY, access),)))
        assert (await harness.client.get(HISTORY)).status == status


async def test_the_history_is_that_of_all_workers(mock_clock: MockClock) -> None:
    harness, history = watched(make_harness(), WorkerReport(2, "", SECOND), silent(3))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(record_history, harness.state)
        await history.wait_added()
        mock_clock.jump(10)
        await history.wait_added()
        nursery.cancel_scope.cancel()
    (sample,) = history.samples()
    assert (sample.live_runs, sample.loop_lag_seconds) == (7, 1000)


async def test_a_reading_that_fails_is_logged_and_left_out(mock_clock: MockClock) -> None:
    harness, history = watched(make_harness(), WorkerReport(2, "", SECOND))
    workers = harness.state.health.workers
    assert workers is not None
    failures = [KeyError("a bug")]

    async def collect() -> Sequence[WorkerReport]:
        if failures:
            raise failures.pop()
        return await workers.collect()

    health = evolve(harness.state.health, workers=Workers(1, collect))
    state = evolve(harness.state, health=health)
    with capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(record_history, state)
            await wait_all_tasks_blocked()
            logged = [line["event"] for line in lines]
            for _ in range(2):
                mock_clock.jump(10)
                await history.wait_added()
            nursery.cancel_scope.cancel()
    assert logged == ["the metrics could not be recorded"]
    assert len(history.samples()) == 1


def test_a_reading_adds_up_labels() -> None:
    text = b"""\
# TYPE hermes_trio_http_requests_total counter
hermes_trio_http_requests_total{method="GET",route="/a",status="200"} 5
hermes_trio_http_requests_total{method="GET",route="/a",status="500"} 2
hermes_trio_http_requests_total{method="POST",route="/a",status="503"} 1
# TYPE hermes_trio_http_request_duration_seconds histogram
hermes_trio_http_request_duration_seconds_bucket{le="0.1",route="/a"} 6
hermes_trio_http_request_duration_seconds_bucket{le="+Inf",route="/a"} 8
hermes_trio_http_request_duration_seconds_count{route="/a"} 8
hermes_trio_http_request_duration_seconds_sum{route="/a"} 3
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes{worker="1"} 100
process_resident_memory_bytes{worker="2"} 200
"""
    reading = parse_reading(text)
    assert reading.memory_bytes == 300
    assert reading.routes["/a"].errors == 3
    assert list(reading.routes["/a"].seconds.counts) == [6, 8]
    assert reading.store.count == 0
