"""Requests to different nodes that only one of them can win."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.cluster.nodes import Cluster
from tests.cluster.races import RACES, Race, run_races


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
async def test_one_winner_and_the_same_answer_everywhere(
    race: Callable[[Race], Awaitable[None]], shared_cluster: Cluster, seed: str, full: bool
) -> None:
    problems = await run_races(race, shared_cluster, 1000 if full else 10, seed)
    problems += [f"logged: {line}" for line in shared_cluster.complaints("")]
    assert not problems, "\n".join(problems)
