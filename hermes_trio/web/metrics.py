"""Prometheus metrics: labelled by route template only, never per token."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

# A stream of an agent may last for minutes.
_SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 5, 15, 60, 300, 1800)


@frozen
class Seen:
    """What others count, as it stood when somebody asked."""

    streams: int = 0
    events: int = 0
    commits: int = 0
    lag: float = 0.0


NOTHING_SEEN = Seen()


class _Counted(Collector):
    """Counters that others keep: they are told when somebody asks, so counting costs nothing here."""

    def __init__(self) -> None:
        self.seen = NOTHING_SEEN

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The figures of the latest look."""
        events, commits = self.seen.events, self.seen.commits
        yield CounterMetricFamily("hermes_trio_run_events", "Events of all runs", value=events)
        yield CounterMetricFamily("hermes_trio_store_commits", "Transactions of the store", value=commits)


class Metrics:
    """The figures of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "hermes_trio_http_requests_total",
            "Answers begun",
            ["route", "method", "status"],
            registry=self.registry,
        )
        # To look a label up takes longer than to count.
        self._answers: dict[tuple[str, str, int], Counter] = {}
        self._ends: dict[tuple[str, str], Counter] = {}
        self._runs = Counter(
            "hermes_trio_runs_total", "Runs that ended", ["status", "reason"], registry=self.registry
        )
        self._run_seconds = self._histogram("hermes_trio_run_seconds", "Length of a run")
        self._first_text = self._histogram("hermes_trio_first_text_seconds", "From a run's begin to its text")
        self._tokens = Counter(
            "hermes_trio_output_tokens_total", "Tokens of runs that ended", registry=self.registry
        )
        self._active = self._gauge("hermes_trio_runs_active", "Runs that are live")
        self._slots = self._gauge("hermes_trio_slots_in_use", "Slots that are taken")
        self._streams = self._gauge("hermes_trio_streams_open", "Streams that somebody reads")
        self._lag = self._gauge("hermes_trio_loop_lag_seconds", "How long a task waits for its turn")
        self._counted = _Counted()
        self.registry.register(self._counted)
        ProcessCollector(registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, buckets=_SECONDS, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self.registry)

    def answered(self, route: str, method: str, status: int) -> None:
        """An answer began."""
        counted = self._answers.get((route, method, status))
        if counted is None:
            counted = self._answers[route, method, status] = self._requests.labels(route, method, str(status))
        counted.inc()

    def run_ended(self, status: str, reason: str, seconds: float, tokens: int = 0) -> None:
        """A run ended."""
        counted = self._ends.get((status, reason))
        if counted is None:
            counted = self._ends[status, reason] = self._runs.labels(status, reason)
        counted.inc()
        self._run_seconds.observe(seconds)
        self._tokens.inc(max(0, tokens))

    def first_text(self, seconds: float) -> None:
        """A run said its first word."""
        self._first_text.observe(seconds)

    def observe_state(self, active: int, slots: int, seen: Seen = NOTHING_SEEN) -> None:
        """Take over what is counted elsewhere."""
        self._active.set(active)
        self._slots.set(slots)
        self._streams.set(seen.streams)
        self._lag.set(seen.lag)
        self._counted.seen = seen
