"""Jobs that several real nodes are free to start: each run begins once, also if a node dies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cluster.exchange import Address, ask
from tests.cluster.nodes import ENDED, LOGGED_AFTER_A_DEATH, Cluster, wait_for
from tests.support.server_process import kill

JOBS = "/api/jobs"
COUNT = 20


async def create(node: Address, schedule: str) -> str:
    """Create a job on a node, whose scheduler then looks at the jobs of all nodes."""
    body = {"name": "race", "schedule": schedule, "prompt": "/think of it"}
    reply = await ask(node, "POST", JOBS, body)
    assert reply.status == 200, reply
    return str(reply.json()["job"]["id"])


async def runs_by_job(node: Address, count: int) -> dict[str, list[dict[str, Any]]]:
    """Wait until as many runs of jobs have ended, and return all there are."""

    def has_all(reply: Any) -> bool:
        runs = reply.json()["data"] if reply.status == 200 else []
        return len([run for run in runs if run["status"] in ENDED]) >= count

    found: dict[str, list[dict[str, Any]]] = {}
    reply = await wait_for(node, "/v1/runs?kind=cron&limit=100", has_all)
    for run in reply.json()["data"]:
        found.setdefault(run["job_id"], []).append(run)
    return found


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


async def test_of_several_nodes_one_starts_a_job(cluster: Cluster) -> None:
    due = soon(4)
    jobs = [await create(cluster.nodes[0], due) for _ in range(COUNT)]
    jobs += [await create(node, due) for node in cluster.nodes[1:]]
    found = await runs_by_job(cluster.nodes[0], len(jobs))
    assert {job: len(runs) for job, runs in found.items()} == dict.fromkeys(jobs, 1)
    assert not cluster.complaints("")


async def test_the_jobs_of_a_dead_node_are_started_by_others(cluster: Cluster) -> None:
    due = soon(4)
    jobs = [await create(cluster.nodes[0], due) for _ in range(COUNT)]
    jobs += [await create(node, due) for node in cluster.nodes[1:]]
    kill(cluster.servers[0])
    found = await runs_by_job(cluster.nodes[1], len(jobs))
    assert {job: len(runs) for job, runs in found.items()} == dict.fromkeys(jobs, 1)
    assert {run["status"] for runs in found.values() for run in runs} == {"completed"}
    assert not cluster.complaints(LOGGED_AFTER_A_DEATH)


async def test_a_node_that_dies_with_jobs_leaves_one_record_of_each(cluster: Cluster) -> None:
    jobs = [await create(cluster.nodes[0], soon(0)) for _ in range(COUNT)]
    kill(cluster.servers[0])
    # The others look at least once a minute; a job wakes them.
    jobs.append(await create(cluster.nodes[1], soon(0)))
    found = await runs_by_job(cluster.nodes[1], len(jobs))
    assert {job: len(runs) for job, runs in found.items()} == dict.fromkeys(jobs, 1)
    assert not cluster.complaints(LOGGED_AFTER_A_DEATH)
