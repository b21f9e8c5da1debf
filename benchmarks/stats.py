"""Statistics as pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from attrs import frozen

from benchmarks.client.orders import Spread

NANOSECONDS = 1_000_000  # in a millisecond


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the ordered values does not exceed; 0 if there are none."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(nanoseconds: Sequence[int]) -> Spread:
    """Return the spread of a duration that was measured often."""
    ordered = sorted(nanoseconds)
    if not ordered:
        return Spread()
    p50, p99 = (percentile(ordered, share) / NANOSECONDS for share in (0.5, 0.99))
    return Spread(p50, p99, ordered[-1] / NANOSECONDS)


@frozen
class Summary:
    """A figure over several repeats."""

    median: float
    low: float
    high: float
    count: int


def summary(values: Sequence[float]) -> Summary:
    """Return the median, the lowest and the highest value."""
    return Summary(statistics.median(values), min(values), max(values), len(values))


def ratio(numerator: float, denominator: float) -> float:
    """Return a quotient; infinity if the divisor is 0."""
    return numerator / denominator if denominator else math.inf
