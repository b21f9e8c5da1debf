"""Health and metrics of a server with several workers, whichever of them is asked."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve
from prometheus_client.parser import text_string_to_metric_families

from hermes_trio.core.events import Text
from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.web.api.info import report_worker
from hermes_trio.web.app import attach_state
from hermes_trio.web.metrics import SECONDS
from hermes_trio.web.workers import WorkerReport, Workers, explain, merge_metrics, silent
from tests.support.fakes import CHAT, AppHarness, ask, make_harness

SECOND = """\
# HELP hermes_trio_runs_total Runs that ended
# TYPE hermes_trio_runs_total counter
hermes_trio_runs_total{reason="",status="completed"} 40.0
hermes_trio_runs_total{reason="timeout",status="incomplete"} 2.0
# HELP hermes_trio_runs_active Runs that are live
# TYPE hermes_trio_runs_active gauge
hermes_trio_runs_active 7.0
# HELP hermes_trio_loop_lag_seconds How long a task waits for its turn
# TYPE hermes_trio_loop_lag_seconds gauge
hermes_trio_loop_lag_seconds 1000.0
# HELP process_open_fds Number of open file descriptors.
# TYPE process_open_fds gauge
process_open_fds 12.0
"""


def values(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The samples of a text by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def with_others(harness: AppHarness, *reports: WorkerReport) -> AppHarness:
    """The same server as worker 1, with others that report something."""

    async def collect() -> Sequence[WorkerReport]:
        return reports

    health = evolve(harness.state.health, workers=Workers(1, collect))
    state = evolve(harness.state, health=health)
    attach_state(harness.app, state)
    return evolve(harness, state=state)


async def test_metrics_are_those_of_all_workers() -> None:
    harness = with_others(make_harness([Text("x")]), WorkerReport(2, "", SECOND), silent(3))
    await harness.client.send(CHAT, ask())
    answer = await harness.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    seen = values(answer.body)
    completed = (("reason", ""), ("status", "completed"))
    assert seen["hermes_trio_runs_total", completed] == 41
    assert seen["hermes_trio_runs_total", (("reason", "timeout"), ("status", "incomplete"))] == 2
    assert seen["hermes_trio_runs_active", ()] == 7
    assert seen["hermes_trio_run_duration_seconds_count", ()] == 1
    assert seen["hermes_trio_loop_lag_seconds", ()] == 1000
    assert seen["process_open_fds", (("worker", "2"),)] == 12
    assert seen["process_open_fds", (("worker", "1"),)] > 1
    assert ("process_open_fds", ()) not in seen
    assert seen["hermes_trio_workers", ()] == 3
    assert seen["hermes_trio_workers_answering", ()] == 2


async def test_metrics_of_a_server_without_workers_do_not_mention_them() -> None:
    answer = await make_harness().client.get("/metrics")
    assert b"worker" not in answer.body


async def test_a_worker_reports_what_it_would_show_alone() -> None:
    harness = make_harness([Text("x")], not_ready="draining")
    await harness.client.send(CHAT, ask())
    report = await report_worker(harness.state, 5)
    assert (report.number, report.not_ready) == (5, "draining")
    alone = (await harness.client.get("/metrics")).body
    assert report.metrics is not None
    assert values(report.metrics.encode()).keys() <= values(alone).keys()


async def test_the_sum_of_histograms_is_a_histogram() -> None:
    harness = make_harness([Text("x")])
    harness.state.metrics.run_ended(Outcome(Status.COMPLETED), 0.01)
    harness.state.metrics.run_ended(Outcome(Status.COMPLETED), 1e6)
    report = await report_worker(harness.state, 1)
    merged = values(merge_metrics([report, evolve(report, number=2)]))
    single = values((report.metrics or "").encode())
    runs = {key for key in single if key[0].startswith("hermes_trio_run_duration_seconds")}
    assert len(runs) == len(SECONDS) + 3  # infinity, the sum and the count
    assert all(merged[key] == 2 * single[key] for key in runs)
    text = merge_metrics([report, evolve(report, number=2)]).decode()
    buckets = [
        line for line in text.splitlines() if line.startswith("hermes_trio_run_duration_seconds_b")
    ]
    assert buckets[-1] == 'hermes_trio_run_duration_seconds_bucket{le="+Inf"} 4.0'


async def test_a_server_is_ready_if_all_workers_are() -> None:
    ready = with_others(make_harness(), WorkerReport(2, "", ""), WorkerReport(3, "", ""))
    assert (await ready.client.get("/health/ready")).status == 200
    starting = with_others(make_harness(), WorkerReport(2, "", ""), WorkerReport(3, "starting", ""))
    answer = await starting.client.get("/health/ready")
    assert (answer.status, answer.json["reason"]) == (503, "worker 3: starting")
    silenced = with_others(make_harness(), silent(2))
    answer = await silenced.client.get("/health/ready")
    assert (answer.status, answer.json["reason"]) == (503, "worker 2: does not answer")


async def test_liveness_does_not_depend_on_others() -> None:
    harness = with_others(make_harness(), silent(2))
    for path in ("/health", "/health/live"):
        assert (await harness.client.get(path)).status == 200


def test_all_ready_needs_no_explanation() -> None:
    assert explain([WorkerReport(2, "", "")]) == explain([]) == ""


async def test_the_workers_are_listed_in_the_status() -> None:
    harness = with_others(make_harness(), silent(3), WorkerReport(2, "draining", SECOND))
    shown = (await harness.client.get("/api/status")).json["server"]["workers"]
    assert [(each["number"], each["is_this"]) for each in shown] == [
        (1, True),
        (2, False),
        (3, False),
    ]
    assert [each["not_ready"] for each in shown] == ["", "draining", "does not answer"]
    assert [each["live_runs"] for each in shown] == [0, 7, None]
    assert shown[0]["memory_bytes"] > 1_000_000
    assert shown[1]["memory_bytes"] is shown[2]["memory_bytes"] is None
