"""The retention rules that every engine shares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.core.records import OwnerUsage, Retention
from hermes_trio.stores.retention import AccessTimes, RunAccess, fair_quota


def test_access_times_are_bounded_and_the_oldest_go() -> None:
    times = AccessTimes(limit=3)
    for at, run_id in enumerate("abcadd"):
        times.record(RunAccess("ann", run_id, float(at)))
    assert [(access.run_id, access.at) for access in times.drain()] == [
        ("c", 2.0),
        ("a", 3.0),
        ("d", 5.0),
    ]
    assert times.drain() == ()


@pytest.mark.parametrize(
    ("stored", "limit", "share"),
    [
        ([], 10, None),
        ([5, 5], 10, None),
        ([3, 8], 10, 7),
        ([6, 8], 10, 5),
        ([1, 2, 30, 40], 11, 4),
        ([5, 5, 5], 4, 1),
        ([5, 5], 0, None),
    ],
)
def test_those_who_store_most_shrink_to_the_same_amount(
    stored: list[int], limit: int, share: int | None
) -> None:
    usages = [OwnerUsage(str(number), amount, amount) for number, amount in enumerate(stored)]
    quota = fair_quota(usages, Retention(max_runs=limit, max_bytes=limit))
    assert (quota.runs, quota.size) == (share, share)


@given(st.lists(st.integers(1, 1_000), min_size=1), st.integers(1, 10_000))
def test_a_quota_is_fair(stored: list[int], limit: int) -> None:
    quota = fair_quota([OwnerUsage("", runs, 0) for runs in stored], Retention(max_runs=limit))
    if quota.runs is None:
        assert sum(stored) <= limit
    else:
        assert quota.runs >= limit // len(stored)  # an equal share is everybody's
        assert limit - len(stored) < sum(min(runs, quota.runs) for runs in stored) <= limit
