"""The tests of clusters in short form, with PgBouncer in transaction mode between nodes and database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import pytest

from tests.cluster.handovers import SCENARIOS, check_handovers
from tests.cluster.kills import kill_nodes
from tests.cluster.nodes import LEASE, Cluster, run_cluster
from tests.cluster.outages import cut_connections
from tests.cluster.pauses import pause_owner
from tests.cluster.races import RACES, Race, run_races
from tests.cluster.readers import read_on_all_nodes
from tests.support.postgres import PostgresServer, run_pgbouncer

SHORT = 5


@pytest.fixture(scope="module")
def pooled_cluster(
    durable_postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Three nodes that reach a new database through PgBouncer."""
    name = durable_postgres.create_database().partition("@/")[2].partition("?")[0]
    with run_pgbouncer(durable_postgres) as place:
        url = f"postgresql://postgres@/{name}?{place}"
        settings = {"stream_durability": "strict", "approval_seconds": 3.0}
        with run_cluster(tmp_path_factory.mktemp("pooled"), url, settings=settings) as cluster:
            yield cluster


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_handovers(
    scenario: Callable[[Cluster], Awaitable[list[str]]], pooled_cluster: Cluster
) -> None:
    problems = await check_handovers(scenario, pooled_cluster)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
async def test_races(
    race: Callable[[Race], Awaitable[None]], pooled_cluster: Cluster, seed: str
) -> None:
    problems = await run_races(race, pooled_cluster, SHORT, seed)
    assert not problems, "\n".join(problems)


async def test_readers(pooled_cluster: Cluster) -> None:
    problems = await read_on_all_nodes(pooled_cluster, SHORT)
    assert not problems, "\n".join(problems)


async def test_a_stopped_owner(pooled_cluster: Cluster, seed: str) -> None:
    problems = await pause_owner(pooled_cluster, LEASE + 1, seed, is_strict=True)
    assert not problems, "\n".join(problems)


async def test_kills(pooled_cluster: Cluster, seed: str) -> None:
    report = await kill_nodes(pooled_cluster, 1, seed, print)
    assert not report.findings.violations, "\n".join((report.summary, *report.findings.violations))


async def test_connections_are_cut(pooled_cluster: Cluster, seed: str) -> None:
    problems = await cut_connections(pooled_cluster, 1, seed)
    assert not problems, "\n".join(problems)
