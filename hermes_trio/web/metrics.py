"""Prometheus metrics: every name, label and unit, and the objects that count.

Labels have few values, which clients cannot choose. Nothing is counted once per token.
``python -m scripts.update_metrics`` writes the reference page from ``DESCRIPTIONS``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from attrs import field, frozen
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hermes_trio import __version__
from hermes_trio.core.outcome import Outcome

# A stream of an agent may last for minutes.
SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15, 60, 300, 1800)
# A store in the same process takes less than a millisecond, one across a network several.
STORE_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)

_CREATED = "_created"


class Merge(Enum):
    """What the metric of a server with workers is, given those of its workers."""

    SUM = "sum"
    LARGEST = "largest"
    SMALLEST = "smallest"


@frozen
class Description:
    """One metric."""

    name: str
    kind: str  # counter, gauge or histogram
    text: str
    labels: tuple[str, ...] = ()
    merge: Merge = Merge.SUM


REQUESTS = Description(
    "hermes_trio_http_requests_total",
    "counter",
    "Responses that have started, by route, method and status.",
    ("route", "method", "status"),
)
REQUEST_SECONDS = Description(
    "hermes_trio_http_request_duration_seconds",
    "histogram",
    "Time from a request's arrival to the end of its response, streams included.",
    ("route",),
)
RUNS = Description(
    "hermes_trio_runs_total",
    "counter",
    "Runs that have ended, by status and reason. The reason of a completed run is empty.",
    ("status", "reason"),
)
RUN_SECONDS = Description(
    "hermes_trio_run_duration_seconds", "histogram", "Duration of runs that have ended."
)
FIRST_TEXT = Description(
    "hermes_trio_first_text_seconds", "histogram", "Time from the start of a run to its first text."
)
INPUT_TOKENS = Description(
    "hermes_trio_input_tokens_total", "counter", "Input tokens of runs that have ended."
)
OUTPUT_TOKENS = Description(
    "hermes_trio_output_tokens_total", "counter", "Output tokens of runs that have ended."
)
TOOL_CALLS = Description(
    "hermes_trio_tool_calls_total",
    "counter",
    "Tool calls of runs that have ended, by status: completed, failed or cancelled.",
    ("status",),
)
EVENTS = Description("hermes_trio_run_events_total", "counter", "Events in the logs of all runs.")
COMMITS = Description(
    "hermes_trio_store_commits_total", "counter", "Transactions that the store has committed."
)
STORE_LATENCY = Description(
    "hermes_trio_store_heartbeat_seconds",
    "histogram",
    "Time that the store took for the write that checks it once a second. Its buckets are finer.",
)
ACTIVE = Description("hermes_trio_runs_active", "gauge", "Runs that have not ended.")
SLOTS_IN_USE = Description("hermes_trio_slots_in_use", "gauge", "Run slots that are taken.")
SLOTS = Description(
    "hermes_trio_slots_limit", "gauge", "Run slots that there are: the setting max_runs."
)
STREAMS = Description(
    "hermes_trio_streams_open", "gauge", "Event streams that are being sent to clients."
)
UNSAVED = Description(
    "hermes_trio_unsaved_ends", "gauge", "Ends of runs that the store refused and that are retried."
)
READY = Description(
    "hermes_trio_ready", "gauge", "1 if the server takes new runs, else 0.", merge=Merge.SMALLEST
)
STORE_WORKING = Description(
    "hermes_trio_store_working",
    "gauge",
    "1 if nothing is known against the store, 0 while it cannot be written to.",
    merge=Merge.SMALLEST,
)
LAG = Description(
    "hermes_trio_loop_lag_seconds",
    "gauge",
    "How long a task waited for its turn when the metrics were read.",
    merge=Merge.LARGEST,
)
BUILD = Description(
    "hermes_trio_build_info", "gauge", "Always 1; the label is the version.", ("version",),
    merge=Merge.LARGEST,
)  # fmt: skip
WORKERS = Description(
    "hermes_trio_workers", "gauge", "Processes that serve together. Only with several workers."
)
ANSWERING = Description(
    "hermes_trio_workers_answering",
    "gauge",
    "Workers whose metrics are included. Only with several workers.",
)

DESCRIPTIONS = (
    REQUESTS, REQUEST_SECONDS, RUNS, RUN_SECONDS, FIRST_TEXT, INPUT_TOKENS, OUTPUT_TOKENS,
    TOOL_CALLS, EVENTS, STORE_LATENCY,
    ACTIVE, SLOTS_IN_USE, SLOTS, STREAMS, COMMITS, UNSAVED, STORE_WORKING, READY, LAG, BUILD,
    WORKERS, ANSWERING,
)  # fmt: skip


@frozen
class Snapshot:
    """What other components count, at the time of a scrape."""

    active_runs: int = 0
    slots_in_use: int = 0
    slots: int = 0
    streams: int = 0
    tool_calls: Mapping[str, int] = field(factory=dict)  # by status
    events: int = 0
    commits: int = 0
    unsaved_ends: int = 0
    is_ready: bool = True
    is_store_working: bool = True
    lag: float = 0.0


class _SnapshotCollector(Collector):
    """Counters that other components keep, read when the metrics are scraped."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Return the counters of the latest snapshot."""
        snapshot = self.snapshot
        calls = CounterMetricFamily(TOOL_CALLS.name, TOOL_CALLS.text, labels=TOOL_CALLS.labels)
        for status, count in snapshot.tool_calls.items():
            calls.add_metric([status], count)
        yield calls
        yield CounterMetricFamily(EVENTS.name, EVENTS.text, value=snapshot.events)
        yield CounterMetricFamily(COMMITS.name, COMMITS.text, value=snapshot.commits)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._counter(REQUESTS)
        self._request_seconds = self._histogram(REQUEST_SECONDS)
        self._runs = self._counter(RUNS)
        self._run_seconds = self._histogram(RUN_SECONDS)
        self._first_text = self._histogram(FIRST_TEXT)
        self._store_latency = self._histogram(STORE_LATENCY, STORE_SECONDS)
        self._input_tokens = self._counter(INPUT_TOKENS)
        self._output_tokens = self._counter(OUTPUT_TOKENS)
        self._active = self._gauge(ACTIVE)
        self._slots_in_use = self._gauge(SLOTS_IN_USE)
        self._slots = self._gauge(SLOTS)
        self._streams = self._gauge(STREAMS)
        self._unsaved = self._gauge(UNSAVED)
        self._ready = self._gauge(READY)
        self._store_working = self._gauge(STORE_WORKING)
        self._lag = self._gauge(LAG)
        self._gauge(BUILD).labels(__version__).set(1)
        self._snapshot = _SnapshotCollector()
        self.registry.register(self._snapshot)
        ProcessCollector(registry=self.registry)

    def _counter(self, of: Description) -> Counter:
        return Counter(of.name, of.text, of.labels, registry=self.registry)

    def _histogram(self, of: Description, bounds: tuple[float, ...] = SECONDS) -> Histogram:
        return Histogram(of.name, of.text, of.labels, registry=self.registry, buckets=bounds)

    def _gauge(self, of: Description) -> Gauge:
        return Gauge(of.name, of.text, of.labels, registry=self.registry)

    def response_started(self, route: str, method: str, status: int) -> None:
        """Count a response that starts."""
        self._requests.labels(route, method, status).inc()

    def request_ended(self, route: str, seconds: float) -> None:
        """Record how long a request took, to the end of its response."""
        self._request_seconds.labels(route).observe(seconds)

    def run_ended(self, outcome: Outcome, seconds: float) -> None:
        """Count a run that has ended."""
        self._runs.labels(str(outcome.status), str(outcome.reason)).inc()
        self._run_seconds.observe(seconds)
        # Agents report these numbers, and a counter refuses negative ones.
        self._input_tokens.inc(max(0, outcome.usage.input_tokens))
        self._output_tokens.inc(max(0, outcome.usage.output_tokens))

    def first_text(self, seconds: float) -> None:
        """Record the time to the first text of a run."""
        self._first_text.observe(seconds)

    def store_answered(self, seconds: float) -> None:
        """Record how long the store took for its heartbeat."""
        self._store_latency.observe(seconds)

    def observe_state(self, snapshot: Snapshot) -> None:
        """Set the gauges, and the counters that other components keep."""
        self._active.set(snapshot.active_runs)
        self._slots_in_use.set(snapshot.slots_in_use)
        self._slots.set(snapshot.slots)
        self._streams.set(snapshot.streams)
        self._unsaved.set(snapshot.unsaved_ends)
        self._ready.set(snapshot.is_ready)
        self._store_working.set(snapshot.is_store_working)
        self._lag.set(snapshot.lag)
        self._snapshot.snapshot = snapshot

    def render(self) -> bytes:
        """Return the metrics in Prometheus' text format. Takes milliseconds; may run in a thread."""
        return generate_latest(_WithoutCreationTimes(self.registry))


@frozen
class _WithoutCreationTimes(Collector):
    """The metrics of a registry without the creation time of each counter.

    They would double the number of series, and cannot be merged with those of other workers. The
    library's own switch for them counts for the whole process, which may belong to another program.
    """

    registry: CollectorRegistry

    def collect(self) -> Iterator[Metric]:
        """Return the metrics."""
        for family in self.registry.collect():
            family.samples = [each for each in family.samples if not each.name.endswith(_CREATED)]
            yield family
