"""Readers on every node of runs that one node executes. ``python -m benchmarks.cluster`` measures them."""

from __future__ import annotations

from tests.cluster.nodes import Cluster
from tests.cluster.readers import read_on_all_nodes


async def test_readers_on_other_nodes_get_everything(shared_cluster: Cluster, full: bool) -> None:
    problems = await read_on_all_nodes(shared_cluster, 100 if full else 5)
    problems += [f"logged: {line}" for line in shared_cluster.complaints("")]
    assert not problems, "\n".join(problems)
