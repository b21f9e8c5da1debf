"""A run is reached from nodes that do not execute it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.cluster.handovers import SCENARIOS, check_handovers
from tests.cluster.nodes import Cluster


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_any_node_can_do_it(
    scenario: Callable[[Cluster], Awaitable[list[str]]], shared_cluster: Cluster
) -> None:
    problems = await check_handovers(scenario, shared_cluster)
    problems += [f"logged: {line}" for line in shared_cluster.complaints("")]
    assert not problems, "\n".join(problems)
