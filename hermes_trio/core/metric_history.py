"""The recent past of a server's metrics: readings of its counters, and the samples between them.

A reading is what the counters said at one moment; a sample is what happened between two readings.
The time and the readings are given, nothing here waits or measures.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping

from attrs import field, frozen

INTERVAL_SECONDS = 10.0
KEPT_SECONDS = 3600.0
_MAX_SAMPLES = int(KEPT_SECONDS / INTERVAL_SECONDS)
_MAX_ROUTES = 20  # of a sample; the others are the least busy ones


@frozen
class Distribution:
    """How many values were at most as large as each bound, as in a Prometheus histogram.

    The last bound is infinity.
    """

    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()  # cumulative

    @property
    def count(self) -> float:
        """The number of all values."""
        return self.counts[-1] if self.counts else 0.0

    def since(self, before: Distribution) -> Distribution:
        """Return the values that came after an earlier state of the same histogram.

        Nothing where there are fewer values than before: see ``_grown``.
        """
        if before.bounds != self.bounds:
            return self
        pairs = zip(before.counts, self.counts, strict=True)
        return Distribution(self.bounds, tuple(_grown(then, now) for then, now in pairs))

    def plus(self, other: Distribution) -> Distribution:
        """Return the values of both, whose bounds are equal unless one is empty."""
        if not self.bounds or not other.bounds:
            return other if other.bounds else self
        pairs = zip(self.counts, other.counts, strict=True)
        return Distribution(self.bounds, tuple(one + two for one, two in pairs))

    def quantile(self, share: float) -> float | None:
        """Estimate the value that a share of the values does not exceed; None without values.

        Values are taken to be evenly spread between two bounds, as Prometheus' histogram_quantile
        takes them. Beyond the last finite bound, nothing more than this bound is known.
        """
        if self.count <= 0:
            return None
        rank, lower, below = share * self.count, 0.0, 0.0
        for bound, count in zip(self.bounds[:-1], self.counts[:-1], strict=True):
            if count >= rank and count > below:
                return lower + (bound - lower) * (rank - below) / (count - below)
            lower, below = bound, count
        return lower


NO_VALUES = Distribution()


@frozen
class RouteReading:
    """What the counters of one route say."""

    seconds: Distribution = NO_VALUES
    errors: float = 0.0  # responses with a status from 500


@frozen
class Reading:
    """What the metrics of a server say at one moment. Counters count from the start of the server."""

    workers: float = 0.0  # whose metrics are included; 0 for a server without workers
    live_runs: float = 0.0
    open_streams: float = 0.0
    loop_lag_seconds: float = 0.0
    memory_bytes: float = 0.0
    cpu_seconds: float = 0.0  # a counter, as the following
    events: float = 0.0
    output_tokens: float = 0.0
    commits: float = 0.0
    first_text: Distribution = NO_VALUES
    store: Distribution = NO_VALUES
    routes: Mapping[str, RouteReading] = field(factory=dict)


@frozen
class MetricSample:
    """What a server did between two readings. Quantiles are None where nothing was measured."""

    at: float  # of the later reading, in seconds since the epoch
    live_runs: float
    open_streams: float
    events_per_second: float
    output_tokens_per_second: float
    requests_per_second: float
    latency_p50: float | None  # in seconds, as the following
    latency_p99: float | None
    first_text_p50: float | None
    first_text_p99: float | None
    store_p50: float | None
    store_p99: float | None
    store_commits_per_second: float
    loop_lag_seconds: float
    memory_bytes: float
    cpu_cores: float  # how many processors were busy on average


@frozen
class RouteSummary:
    """The requests to one route within the history."""

    route: str
    requests: int
    errors: int
    latency_p50: float | None  # in seconds
    latency_p99: float | None


@frozen
class _Interval:
    sample: MetricSample
    routes: Mapping[str, RouteReading]  # what was added to each


class MetricHistory:
    """The samples of the last hour, oldest first. It holds a bounded number of them."""

    def __init__(self) -> None:
        self._intervals: deque[_Interval] = deque(maxlen=_MAX_SAMPLES)
        self._before: Reading | None = None

    def add(self, reading: Reading, at: float, elapsed: float) -> None:
        """Add what happened in the `elapsed` seconds since the previous reading.

        The first reading is only what the second is compared with; so is one that includes other
        workers than before, as one of them did not answer in time. `at` is in seconds since the
        epoch.
        """
        before, self._before = self._before, reading
        if before is not None and before.workers == reading.workers and elapsed > 0:
            self._intervals.append(_compare(before, reading, at, elapsed))

    def samples(self, after: float = 0.0) -> list[MetricSample]:
        """Return the samples that were taken after a time, oldest first."""
        return [each.sample for each in self._intervals if each.sample.at > after]

    def routes(self, limit: int = 12) -> list[RouteSummary]:
        """Summarise the busiest routes of all samples, busiest first."""
        seconds: dict[str, Distribution] = {}
        errors: Counter[str] = Counter()
        for interval in self._intervals:
            for route, added in interval.routes.items():
                seconds[route] = seconds.get(route, NO_VALUES).plus(added.seconds)
                errors[route] += round(added.errors)
        busiest = sorted(seconds, key=lambda route: (-seconds[route].count, route))[:limit]
        return [_summarise(route, seconds[route], errors[route]) for route in busiest]


def _summarise(route: str, seconds: Distribution, errors: int) -> RouteSummary:
    count = round(seconds.count)
    return RouteSummary(route, count, errors, seconds.quantile(0.5), seconds.quantile(0.99))


def _compare(before: Reading, now: Reading, at: float, elapsed: float) -> _Interval:
    routes = _routes_since(before.routes, now.routes)
    latency = _merge(each.seconds for each in routes.values())
    first_text = now.first_text.since(before.first_text)
    store = now.store.since(before.store)
    sample = MetricSample(
        at=at,
        live_runs=now.live_runs,
        open_streams=now.open_streams,
        events_per_second=_grown(before.events, now.events) / elapsed,
        output_tokens_per_second=_grown(before.output_tokens, now.output_tokens) / elapsed,
        requests_per_second=latency.count / elapsed,
        latency_p50=latency.quantile(0.5),
        latency_p99=latency.quantile(0.99),
        first_text_p50=first_text.quantile(0.5),
        first_text_p99=first_text.quantile(0.99),
        store_p50=store.quantile(0.5),
        store_p99=store.quantile(0.99),
        store_commits_per_second=_grown(before.commits, now.commits) / elapsed,
        loop_lag_seconds=now.loop_lag_seconds,
        memory_bytes=now.memory_bytes,
        cpu_cores=_grown(before.cpu_seconds, now.cpu_seconds) / elapsed,
    )
    busiest = sorted(routes, key=lambda route: -routes[route].seconds.count)[:_MAX_ROUTES]
    return _Interval(sample, {route: routes[route] for route in busiest})


def _routes_since(
    before: Mapping[str, RouteReading], now: Mapping[str, RouteReading]
) -> dict[str, RouteReading]:
    """Return what was added to each route, without those where nothing was."""
    added = {}
    for route, reading in now.items():
        earlier = before.get(route, RouteReading())
        seconds = reading.seconds.since(earlier.seconds)
        errors = _grown(earlier.errors, reading.errors)
        if seconds.count or errors:
            added[route] = RouteReading(seconds, errors)
    return added


def _merge(distributions: Iterable[Distribution]) -> Distribution:
    merged = NO_VALUES
    for each in distributions:
        merged = merged.plus(each)
    return merged


def _grown(before: float, now: float) -> float:
    """Return by how much a counter grew.

    The counters of several workers are added up. If the sum is smaller than before, one of them has
    started again, and how much it had counted since the last reading is not known.
    """
    return max(0.0, now - before)
