"""The owner of runs is stopped for longer than its lease, and continued."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.nodes import LEASE, run_cluster
from tests.cluster.pauses import pause_owner
from tests.support.postgres import PostgresServer


@pytest.mark.parametrize("durability", ["strict", "normal"])
async def test_a_stopped_owner_can_change_nothing_later(
    durability: str, durable_postgres: PostgresServer, tmp_path: Path, seed: str, full: bool
) -> None:
    settings = {"stream_durability": durability}
    with run_cluster(tmp_path, durable_postgres.create_database(), settings=settings) as cluster:
        seconds = 20.0 if full else LEASE + 1
        problems = await pause_owner(cluster, seconds, seed, durability == "strict")
    assert not problems, "\n".join(problems)


async def test_an_owner_stopped_in_a_transaction_blocks_nobody(
    durable_postgres: PostgresServer, tmp_path: Path, seed: str
) -> None:
    settings = {"stream_durability": "strict"}
    with run_cluster(tmp_path, durable_postgres.create_database(), settings=settings) as cluster:
        problems = await pause_owner(cluster, LEASE + 1, seed, True, in_transaction=True)
    assert not problems, "\n".join(problems)
