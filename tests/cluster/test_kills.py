"""Random nodes are killed without warning, under load on all."""

from __future__ import annotations

import pytest

from tests.cluster.kills import kill_nodes
from tests.cluster.nodes import Cluster


@pytest.mark.timeout(7200)
async def test_what_clients_saw_survives_the_kill_of_a_node(
    cluster: Cluster, seed: str, full: bool
) -> None:
    report = await kill_nodes(cluster, 200 if full else 2, seed, print)
    print(report.summary)  # noqa: T201 - figures, for whoever runs the full counts
    assert not report.findings.violations, "\n".join((report.summary, *report.findings.violations))
    assert report.findings.responses > 0
