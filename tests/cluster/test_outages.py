"""The database is killed, its connections are cut, its disk is full: the nodes recover by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.nodes import Cluster, run_cluster
from tests.cluster.outages import crash_database, cut_connections, use_full_disk
from tests.support.postgres import run_postgres, run_small_postgres

pytestmark = pytest.mark.timeout(3600)


@pytest.mark.parametrize("durability", ["strict", "normal"])
async def test_the_database_is_killed(
    durability: str, tmp_path: Path, seed: str, full: bool
) -> None:
    settings = {"stream_durability": durability}
    with (
        run_postgres(is_safe=True) as server,
        run_cluster(tmp_path, server.create_database(), settings=settings) as cluster,
    ):
        crashes = 20 if full else 1
        problems = await crash_database(cluster, server, crashes, seed, durability == "strict")
    assert not problems, "\n".join(problems)


async def test_connections_are_cut(cluster: Cluster, seed: str, full: bool) -> None:
    problems = await cut_connections(cluster, 20 if full else 2, seed)
    assert not problems, "\n".join(problems)


async def test_the_disk_is_full(tmp_path: Path, seed: str) -> None:
    with (
        run_small_postgres() as server,
        run_cluster(tmp_path, server.create_database()) as cluster,
    ):
        problems = await use_full_disk(cluster, server, seed)
    assert not problems, "\n".join(problems)
