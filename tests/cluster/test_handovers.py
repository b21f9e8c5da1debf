"""A run is reached from nodes that do not execute it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import pytest

from tests.cluster.handovers import SCENARIOS, check_handovers
from tests.cluster.nodes import Cluster, run_cluster
from tests.support.postgres import PostgresServer


@pytest.fixture(scope="module")
def cluster(
    durable_postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Three nodes that wait for an approval as long as a busy machine needs to give it."""
    folder, url = tmp_path_factory.mktemp("nodes"), durable_postgres.create_database()
    with run_cluster(folder, url, settings={"approval_seconds": 10.0}) as cluster:
        yield cluster


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_any_node_can_do_it(
    scenario: Callable[[Cluster], Awaitable[list[str]]], cluster: Cluster
) -> None:
    problems = await check_handovers(scenario, cluster)
    problems += [f"logged: {line}" for line in cluster.complaints("")]
    assert not problems, "\n".join(problems)
