"""The retention rules that every engine shares."""

from __future__ import annotations

import pytest

from hermes_trio.core.records import Retention
from hermes_trio.stores.retention import AccessTimes, PurgeCandidate, RunAccess, select_surplus

RUNS = [
    PurgeCandidate("ann", run_id, "", size) for run_id, size in (("a", 10), ("b", 30), ("c", 60))
]


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
    ("limits", "surplus"),
    [
        ({"max_runs": 0, "max_bytes": 0}, ""),
        ({"max_runs": 3, "max_bytes": 100}, ""),
        ({"max_runs": 2, "max_bytes": 0}, "a"),
        ({"max_runs": 1, "max_bytes": 100}, "ab"),
        ({"max_runs": 0, "max_bytes": 99}, "a"),
        ({"max_runs": 0, "max_bytes": 89}, "ab"),
        ({"max_runs": 2, "max_bytes": 60}, "ab"),
        ({"max_runs": 0, "max_bytes": 1}, "abc"),
    ],
)
def test_surplus_runs_are_the_least_used_ones(limits: dict[str, int], surplus: str) -> None:
    chosen = select_surplus(3, 100, RUNS, Retention(**limits))
    assert "".join(run.run_id for run in chosen) == surplus
