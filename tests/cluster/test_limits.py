"""Several nodes obey one limit on the runs of a principal together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.exchange import Reply, ask
from tests.cluster.load import CHAT, RESPONSES, RUNS
from tests.cluster.nodes import (
    LOGGED_AFTER_A_DEATH,
    TAKE_OVER,
    Cluster,
    run_cluster,
    wait_ended,
    wait_for,
)
from tests.cluster.races import Race, at_moments, run_races
from tests.cluster.records import Records
from tests.support.postgres import PostgresServer

LIMIT = 3
LONG = "tokens=100000 rate=50"
REFUSED = 429

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture
def limited(durable_postgres: PostgresServer, tmp_path: Path) -> Iterator[Cluster]:
    """Two nodes with a limit that they share."""
    url, settings = durable_postgres.create_database(), {"max_cluster_runs_per_principal": LIMIT}
    with run_cluster(tmp_path, url, count=2, settings=settings) as cluster:
        yield cluster


async def more_than_allowed(race: Race) -> None:
    """All nodes get more requests at the same time than there are slots: exactly the slots are taken."""
    body = {"input": LONG, "background": True}
    requests = [
        partial(ask, node, "POST", RESPONSES, body) for node in race.nodes for _ in range(LIMIT)
    ]
    moments = [race.dice.uniform(0, 0.01) for _ in requests]
    replies = await at_moments(moments, *requests)
    accepted = [reply.json()["id"] for reply in replies if reply.status == 200]
    race.expect(len(accepted) == LIMIT, f"{len(accepted)} of {LIMIT} runs were accepted")
    for reply in replies:
        race.expect(reply.status == 200 or is_refusal(reply), f"answered {reply}")
    for run_id in accepted:  # each is stopped from a node that may not be its own
        await ask(race.nodes[0], "POST", f"{RESPONSES}/{run_id}/cancel")
        await wait_ended(race.nodes[-1], run_id)


def is_refusal(reply: Reply) -> bool:
    return (
        reply.status == REFUSED
        and reply.error_code == "rate_limit_exceeded"
        and b"retry-after: 1" in reply.head.lower()
    )


async def test_all_nodes_together_accept_no_more(limited: Cluster, seed: str, full: bool) -> None:
    problems = await run_races(more_than_allowed, limited, 1000 if full else 10, seed, at_once=1)
    problems += Records(limited.url).violations()
    problems += [f"logged: {line}" for line in limited.complaints("")]
    assert not problems, "\n".join(problems)


async def test_every_api_counts_and_a_dead_node_does_not(limited: Cluster) -> None:
    first, second = limited.nodes
    started = [await ask(first, "POST", RUNS, {"input": LONG}) for _ in range(LIMIT)]
    assert [reply.status for reply in started] == [202] * LIMIT
    chat = {"messages": [{"role": "user", "content": "tokens=1"}]}
    assert is_refusal(await ask(second, "POST", CHAT, chat))
    limited.servers[0].process.kill()
    await wait_for(second, f"{RUNS}?status=running", lambda reply: not reply.json()["data"])
    assert (await ask(second, "POST", CHAT, chat, seconds=TAKE_OVER)).status == 200
    for _ in range(2 * LIMIT):  # one after the other; no slot is left behind
        assert (await ask(second, "POST", CHAT, chat)).status == 200
    assert limited.complaints(LOGGED_AFTER_A_DEATH) == []
