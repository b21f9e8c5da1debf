"""Readings of counters, the samples between them, and their quantiles."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.core.metric_history import (
    KEPT_SECONDS,
    NO_VALUES,
    Distribution,
    MetricHistory,
    MetricSample,
    Reading,
    RouteReading,
)

BOUNDS = (0.1, 1.0, 10.0, math.inf)


def spread(*counts: float) -> Distribution:
    """A distribution with so many values up to each bound."""
    return Distribution(BOUNDS, counts)


def sampled(before: Reading, now: Reading, elapsed: float = 10.0) -> MetricSample:
    history = MetricHistory()
    history.add(before, 100.0, math.inf)
    history.add(now, 110.0, elapsed)
    (sample,) = history.samples()
    return sample


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ((10, 10, 10, 10), 0.5, 0.05),  # in the middle of the first bucket
        ((0, 10, 10, 10), 0.5, 0.55),
        ((5, 5, 10, 10), 0.5, 0.1),
        ((5, 5, 10, 10), 0.75, 5.5),
        ((0, 0, 0, 10), 0.99, 10.0),  # beyond the last finite bound
        ((0, 0, 0, 0), 0.5, None),
    ],
)
def test_a_quantile_is_read_from_the_buckets(
    counts: tuple[float, ...], share: float, expected: float | None
) -> None:
    assert spread(*counts).quantile(share) == (
        None if expected is None else pytest.approx(expected)
    )


@given(st.lists(st.floats(0, 10), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_within_the_bucket_of_the_exact_one(
    values: list[float], share: float
) -> None:
    counts = [float(sum(value <= bound for value in values)) for bound in BOUNDS]
    exact = sorted(values)[math.ceil(share * len(values)) - 1]
    found = spread(*counts).quantile(share)
    assert found is not None
    edges = (0.0, *BOUNDS)
    upper = next(bound for bound in BOUNDS if exact <= bound)
    assert edges[edges.index(upper) - 1] <= found <= upper


def test_nothing_has_no_quantile_and_changes_no_sum() -> None:
    some = spread(1, 2, 3, 4)
    assert NO_VALUES.quantile(0.5) is None
    assert NO_VALUES.plus(some) == some.plus(NO_VALUES) == some
    assert some.plus(some) == spread(2, 4, 6, 8)


def test_a_sample_is_what_happened_between_two_readings() -> None:
    before = Reading(live_runs=9, events=100, output_tokens=50, commits=7, cpu_seconds=2)
    now = Reading(
        live_runs=3, open_streams=2, loop_lag_seconds=0.5, memory_bytes=1000, cpu_seconds=7,
        events=300, output_tokens=150, commits=27, first_text=spread(1, 1, 1, 1),
        store=spread(0, 2, 2, 2), routes={"/a": RouteReading(spread(20, 20, 20, 20))},
    )  # fmt: skip
    sample = sampled(before, now)
    assert (sample.at, sample.live_runs, sample.open_streams) == (110, 3, 2)
    assert (sample.loop_lag_seconds, sample.memory_bytes, sample.cpu_cores) == (0.5, 1000, 0.5)
    assert (sample.events_per_second, sample.output_tokens_per_second) == (20, 10)
    assert (sample.store_commits_per_second, sample.requests_per_second) == (2, 2)
    assert sample.latency_p50 == sample.first_text_p50 == pytest.approx(0.05)
    assert sample.latency_p99 == sample.first_text_p99 == pytest.approx(0.099)
    assert sample.store_p50 == pytest.approx(0.55)
    assert sample.store_p99 == pytest.approx(0.991)


def test_what_was_counted_before_is_not_counted_again() -> None:
    route = RouteReading(spread(5, 5, 5, 5), errors=2)
    reading = Reading(events=10, first_text=spread(1, 1, 1, 1), routes={"/a": route})
    sample = sampled(reading, reading)
    assert (sample.events_per_second, sample.requests_per_second) == (0, 0)
    assert sample.latency_p50 is sample.first_text_p50 is None


def test_counters_of_a_worker_that_has_started_again_are_no_peak() -> None:
    before = Reading(events=1000, cpu_seconds=7, routes={"/a": RouteReading(spread(9, 9, 9, 9))})
    now = Reading(events=900, cpu_seconds=9, routes={"/a": RouteReading(spread(2, 2, 2, 2))})
    sample = sampled(before, now)
    assert (sample.events_per_second, sample.requests_per_second, sample.cpu_cores) == (0, 0, 0.2)


def test_readings_of_different_workers_are_not_compared() -> None:
    history = MetricHistory()
    for number, (workers, events) in enumerate([(2, 1000), (1, 500), (2, 1020), (2, 1030)]):
        history.add(Reading(workers=workers, events=events), 10.0 * number, 10.0)
    assert [(each.at, each.events_per_second) for each in history.samples()] == [(30, 1)]


def test_the_first_reading_and_one_without_time_are_no_samples() -> None:
    history = MetricHistory()
    history.add(Reading(), 1.0, math.inf)
    history.add(Reading(), 1.0, 0.0)
    assert history.samples() == []


def test_an_hour_is_kept() -> None:
    history = MetricHistory()
    for number in range(1000):
        history.add(Reading(), 10.0 * number, 10.0)
    times = [sample.at for sample in history.samples()]
    assert len(times) == KEPT_SECONDS / 10
    assert (times[0], times[-1]) == (10.0 * 640, 9990.0)
    assert [sample.at for sample in history.samples(after=9970.0)] == [9980.0, 9990.0]


def test_the_busiest_routes_are_summarised() -> None:
    history = MetricHistory()
    for number in range(3):
        routes: dict[str, Any] = {
            "/often": RouteReading(spread(*[10.0 * number] * 4)),
            "/once": RouteReading(spread(0, *[min(number, 1.0)] * 3), errors=float(number)),
            "/never": RouteReading(spread(0, 0, 0, 0)),
        }
        history.add(Reading(routes=routes), 10.0 * number, 10.0)
    often, once = history.routes()
    assert (often.route, often.requests, often.errors) == ("/often", 20, 0)
    assert (once.route, once.requests, once.errors) == ("/once", 1, 2)
    assert often.latency_p50 == pytest.approx(0.05)
    assert once.latency_p99 == pytest.approx(0.991)
    assert history.routes(limit=1) == [often]


def test_many_routes_take_no_more_memory_than_some() -> None:
    history = MetricHistory()
    history.add(Reading(), 0.0, 10.0)
    routes = {f"/{number}": RouteReading(spread(*[1.0 + number] * 4)) for number in range(100)}
    history.add(Reading(routes=routes), 10.0, 10.0)
    assert [each.route for each in history.routes(limit=100)] == [
        f"/{n}" for n in range(99, 79, -1)
    ]
