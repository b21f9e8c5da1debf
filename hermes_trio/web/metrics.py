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


class _Tally(Collector):
    """A counter by labels, for one thread: those of the library are for many, and lock for every single count."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...] = ()) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._counts: defaultdict[tuple[object, ...], int] = defaultdict(int, {} if labels else {(): 0})

    def add(self, *labels: object, count: int = 1) -> None:
        """Count."""
        self._counts[labels] += count

    def collect(self) -> Iterator[CounterMetricFamily]:
        """All of it, perhaps for another thread."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for labels, count in list(self._counts.items()):
            family.add_metric([str(label) for label in labels], count)
        yield family


class _Spread(Collector):
    """A histogram of seconds, in the same way."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._counts = [0] * (len(_SECONDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """It took so long."""
        self._counts[bisect_left(_SECONDS, seconds)] += 1
        self._sum += seconds

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """All of it, perhaps for another thread."""
        bounds = [*map(str, map(float, _SECONDS)), "+Inf"]
        buckets = list(zip(bounds, accumulate(list(self._counts)), strict=True))
        yield HistogramMetricFamily(self._name, self._text, buckets=buckets, sum_value=self._sum)


class Metrics:
    """The figures of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = _Tally("hermes_trio_http_requests", "Answers begun", ("route", "method", "status"))
        self._runs = _Tally("hermes_trio_runs", "Runs that ended", ("status", "reason"))
        self._run_seconds = _Spread("hermes_trio_run_seconds", "Length of a run")
        self._first_text = _Spread("hermes_trio_first_text_seconds", "From a run's begin to its text")
        self._tokens = _Tally("hermes_trio_output_tokens", "Tokens of runs that ended")
        self._active = self._gauge("hermes_trio_runs_active", "Runs that are live")
        self._slots = self._gauge("hermes_trio_slots_in_use", "Slots that are taken")
        self._streams = self._gauge("hermes_trio_streams_open", "Streams that somebody reads")
        self._lag = self._gauge("hermes_trio_loop_lag_seconds", "How long a task waits for its turn")
        self._counted = _Counted()
        for own in (
            self._requests,
            self._runs,
            self._run_seconds,
            self._first_text,
            self._tokens,
            self._counted,
        ):
            self.registry.register(own)
        ProcessCollector(registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self.registry)

    def answered(self, route: str, method: str, status: int) -> None:
        """An answer began."""
        self._requests.add(route, method, status)

    def run_ended(self, status: str, reason: str, seconds: float, tokens: int = 0) -> None:
        """A run ended."""
        self._runs.add(status, reason)
        self._run_seconds.observe(seconds)
        self._tokens.add(count=max(0, tokens))

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
