"""Take the database away from nodes under load, and give it back."""

from __future__ import annotations

import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from tests.cluster.checks import check_turns
from tests.cluster.exchange import Address, ask
from tests.cluster.load import RESPONSES, Crowd
from tests.cluster.nodes import (
    LOGGED_WITHOUT_DATABASE,
    TAKE_OVER,
    Cluster,
    wait_idle,
    wait_not_ready,
    wait_ready,
)
from tests.cluster.records import Records
from tests.support.disks import fill_disk
from tests.support.postgres import PostgresServer

EARLIEST, LATEST = 0.2, 1.0  # seconds from the first request to the outage, and how long it lasts
NOTICED = 15.0  # seconds until a node must have noticed, and until it must have recovered
REFUSALS = frozenset({0, 503})
# A run that cannot be stored for too long is ended, and says so.
REASONS = frozenset({"process_died", "server_error"})


async def crash_database(
    cluster: Cluster, server: PostgresServer, crashes: int, seed: str, is_strict: bool
) -> list[str]:
    """Kill the database server under load and start it again, again and again."""
    dice, problems = random.Random(seed), list[str]()
    for number in range(crashes):
        how = dice.choice((signal.SIGKILL, signal.SIGQUIT))
        async with _under_load(cluster, f"{seed}-{number}", problems, is_strict):
            await trio.sleep(dice.uniform(EARLIEST, LATEST))
            await trio.to_thread.run_sync(server.crash, how)
            async with trio.open_nursery() as nursery:
                for node in cluster.nodes:
                    nursery.start_soon(wait_not_ready, node, NOTICED)
            problems += await _check_refusals(cluster)
            await trio.sleep(dice.uniform(0, LATEST))
            await trio.to_thread.run_sync(server.start)
            async with trio.open_nursery() as nursery:
                for node in cluster.nodes:
                    nursery.start_soon(wait_ready, node, NOTICED)
            problems += await _check_recovered(cluster)
    return problems + Records(cluster.url).violations()


async def cut_connections(cluster: Cluster, cuts: int, seed: str) -> list[str]:
    """Terminate all connections to the database under load, several times; no turn may notice."""
    dice, problems = random.Random(seed), list[str]()
    records = Records(cluster.url)
    async with _under_load(cluster, seed, problems, is_strict=True):
        for _ in range(cuts):
            await trio.sleep(dice.uniform(EARLIEST, LATEST))
            if not await trio.to_thread.run_sync(records.cut_connections):
                problems.append("there was no connection to cut")
    return problems + records.violations()


async def use_full_disk(cluster: Cluster, server: PostgresServer, seed: str) -> list[str]:
    """Leave no room on the disk of the database for a while, under load."""
    problems = list[str]()
    async with _under_load(cluster, seed, problems, is_strict=True):
        await trio.sleep(EARLIEST)
        ballast = await trio.to_thread.run_sync(fill_disk, server.directory)
        try:
            async with trio.open_nursery() as nursery:
                for node in cluster.nodes:
                    nursery.start_soon(_fill_records, node)
            async with trio.open_nursery() as nursery:
                for node in cluster.nodes:
                    nursery.start_soon(wait_not_ready, node, NOTICED)
        finally:
            ballast.unlink()
        # PostgreSQL gives up where it cannot write its log; then an operator starts it again.
        if not server.is_running:
            await trio.to_thread.run_sync(server.crash)
            await trio.to_thread.run_sync(server.start)
        async with trio.open_nursery() as nursery:
            for node in cluster.nodes:
                nursery.start_soon(wait_ready, node, 4 * NOTICED)
        problems += await _check_recovered(cluster)
    return problems + Records(cluster.url).violations()


@asynccontextmanager
async def _under_load(
    cluster: Cluster, seed: str, problems: list[str], is_strict: bool
) -> AsyncIterator[None]:
    """Keep the nodes busy during the block, and afterwards check everything that clients have seen."""
    crowd = Crowd(cluster, seed, unavailable=REFUSALS)
    async with trio.open_nursery() as nursery:
        await nursery.start(crowd.run)
        yield
        crowd.finish()
    for node in cluster.nodes:
        await wait_idle(node)
    seconds = TAKE_OVER + NOTICED
    findings = await check_turns(cluster.nodes[0], crowd.seen, seconds, _slack(is_strict), REASONS)
    problems += [f"seed {seed}: {problem}" for problem in findings.violations]
    if not crowd.seen:
        problems.append(f"seed {seed}: no turn had begun")
    expected = LOGGED_WITHOUT_DATABASE
    problems += [f"seed {seed}: logged: {line}" for line in cluster.complaints(expected)]


def _slack(is_strict: bool) -> float:
    """How much text may be missing: with ``normal`` durability as much as an outage lasts."""
    return 0.0 if is_strict else 2 * NOTICED


async def _fill_records(node: Address) -> None:
    """Store responses until there is no more room, in the files that PostgreSQL has already."""
    with trio.fail_after(4 * NOTICED):
        while True:
            reply = await ask(node, "POST", RESPONSES, {"input": "tokens=100 size=1000"})
            if reply.status == 503 and reply.error_code == "session_db_unavailable":
                return


async def _check_refusals(cluster: Cluster) -> list[str]:
    """Without database, a turn that has to be stored is refused at once, and says why."""
    found = []
    for node in cluster.nodes:
        found += await _check_refusal(node)
    return found


async def _check_refusal(node: Address) -> list[str]:
    reply = await ask(node, "POST", RESPONSES, {"input": "tokens=1"}, seconds=NOTICED)
    if reply.status == 503 and reply.error_code == "session_db_unavailable":
        return []
    return [f"without database, node {node.port} answers {reply}"]


async def _check_recovered(cluster: Cluster) -> list[str]:
    """Every node stores turns again, and every other one finds them."""
    found = []
    for node in cluster.nodes:
        made = await ask(node, "POST", RESPONSES, {"input": "tokens=2"})
        if made.status != 200:
            found.append(f"recovered, node {node.port} answers {made}")
            continue
        path = f"{RESPONSES}/{made.json()['id']}"
        replies = [await ask(other, "GET", path) for other in cluster.nodes]
        found += [f"recovered, {path} is {reply}" for reply in replies if reply.status != 200]
    return found
