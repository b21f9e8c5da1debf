"""Statistics."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.client.orders import Spread
from benchmarks.stats import Summary, percentile, ratio, spread, summary

VALUES = st.lists(st.integers(0, 10**12), min_size=1, max_size=50)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.5, 0),
        ([7], 0.99, 7),
        ([1, 2, 3], 0.5, 2),
        ([1, 2, 3, 4], 0.5, 2),
        (list(range(1, 101)), 0.99, 99),
        (list(range(1, 102)), 0.99, 100),
        ([1, 2], 0.0, 1),
    ],
)
def test_a_percentile_is_a_value_that_was_seen(
    values: list[float], share: float, expected: float
) -> None:
    assert percentile(values, share) == expected


@given(VALUES)
def test_a_spread_is_ordered_and_does_not_depend_on_the_order(values: list[int]) -> None:
    found = spread(values)
    assert found.p50 <= found.p99 <= found.highest == max(values) / 1e6
    assert found == spread(list(reversed(values)))


def test_nothing_spreads_over_nothing() -> None:
    assert spread([]) == Spread(0.0, 0.0, 0.0)


def test_a_summary_has_the_middle_and_the_ends() -> None:
    assert summary([3.0, 1.0, 10.0]) == Summary(3.0, 1.0, 10.0, 3)


def test_a_ratio_to_nothing_is_infinite() -> None:
    assert ratio(6, 3) == 2
    assert ratio(6, 0) == math.inf
