"""Prometheus metrics: labelled by route template only, never per token."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

from attrs import frozen
from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

# A stream of an agent may last for minutes.
_SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 5, 15, 60, 300, 1800)


@frozen
class Snapshot:
    """What other components count, at the time of a scrape."""

    streams: int = 0
    events: int = 0
    commits: int = 0
    lag: float = 0.0


EMPTY = Snapshot()


class _SnapshotCollector(Collector):
    """Counters that other components keep, read when the metrics are scraped."""

    def __init__(self) -> None:
        self.snapshot = EMPTY

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Return the counters of the latest snapshot."""
        events, commits = self.snapshot.events, self.snapshot.commits
        yield CounterMetricFamily("hermes_trio_run_events", "Events of all runs", value=events)
        yield CounterMetricFamily(
            "hermes_trio_store_commits", "Transactions of the store", value=commits
        )


class _Counter(Collector):
    """A labelled counter for one thread. The library's own take a lock for every increment."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...] = ()) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._counts: defaultdict[tuple[object, ...], int] = defaultdict(
            int, {} if labels else {(): 0}
        )

    def add(self, *labels: object, count: int = 1) -> None:
        """Increment the counter of some label values."""
        self._counts[labels] += count

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Return all values. May run in another thread."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for labels, count in list(self._counts.items()):
            family.add_metric([str(label) for label in labels], count)
        yield family


class _Histogram(Collector):
    """A histogram of durations for one thread."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._counts = [0] * (len(_SECONDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Add a duration."""
        self._counts[bisect_left(_SECONDS, seconds)] += 1
        self._sum += seconds

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Return all values. May run in another thread."""
        bounds = [*map(str, map(float, _SECONDS)), "+Inf"]
        buckets = list(zip(bounds, accumulate(list(self._counts)), strict=True))
        yield HistogramMetricFamily(self._name, self._text, buckets=buckets, sum_value=self._sum)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = _Counter(
            "hermes_trio_http_requests", "Answers begun", ("route", "method", "status")
        )
        self._runs = _Counter("hermes_trio_runs", "Runs that ended", ("status", "reason"))
        self._run_seconds = _Histogram("hermes_trio_run_seconds", "Length of a run")
        self._first_text = _Histogram(
            "hermes_trio_first_text_seconds", "From a run's begin to its text"
        )
        self._tokens = _Counter("hermes_trio_output_tokens", "Tokens of runs that ended")
        self._active = self._gauge("hermes_trio_runs_active", "Runs that are live")
        self._slots = self._gauge("hermes_trio_slots_in_use", "Slots that are taken")
        self._streams = self._gauge("hermes_trio_streams_open", "Streams being read")
        self._lag = self._gauge(
            "hermes_trio_loop_lag_seconds", "How long a task waits for its turn"
        )
        self._snapshot = _SnapshotCollector()
        for own in (
            self._requests,
            self._runs,
            self._run_seconds,
            self._first_text,
            self._tokens,
            self._snapshot,
        ):
            self.registry.register(own)
        ProcessCollector(registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self.registry)

    def response_started(self, route: str, method: str, status: int) -> None:
        """Count a response that starts."""
        self._requests.add(route, method, status)

    def run_ended(self, status: str, reason: str, seconds: float, tokens: int = 0) -> None:
        """Count a run that has ended."""
        self._runs.add(status, reason)
        self._run_seconds.observe(seconds)
        self._tokens.add(count=max(0, tokens))

    def first_text(self, seconds: float) -> None:
        """Record the time to the first text of a run."""
        self._first_text.observe(seconds)

    def observe_state(self, active: int, slots: int, snapshot: Snapshot = EMPTY) -> None:
        """Set the gauges, and the counters that other components keep."""
        self._active.set(active)
        self._slots.set(slots)
        self._streams.set(snapshot.streams)
        self._lag.set(snapshot.lag)
        self._snapshot.snapshot = snapshot
