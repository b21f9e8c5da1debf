"""``python -m benchmarks.nodes``.

Measure what one node costs its database: connections, transactions, notifications, bytes of the
write-ahead log and processor time. Idle, with runs, and with readers of these runs on another node.
Needs PostgreSQL on this machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import trio
from attrs import frozen

from benchmarks.cluster import AGENT, SETTINGS, begin_run, read_runs
from benchmarks.store import print_line
from benchmarks.trees import tree_seconds
from benchmarks.workers import measured_postgres
from hermes_trio.stores.postgres.listening import channel_of
from tests.cluster.exchange import Address
from tests.cluster.nodes import Cluster, run_cluster, wait_idle
from tests.support.postgres import PostgresServer

NODES = (1, 2, 4)
LOADED = 2
CLIENTS = 8
LIMIT_SECONDS = 3.0
IDLE_SECONDS = 20.0
SETTLE_SECONDS = 3.0  # until the statistics of the database contain what has happened
HEADING = (
    f"{'':<36} {'seconds':>8} {'connections':>12} {'transactions/s':>15} {'notices/s':>10} {'log kB/s':>9}"
    f" {'log B/token':>12} {'database CPU':>13} {'CPU of each node':>17}"
)
_COUNTERS = """
    SELECT (SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()),
        pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')
"""
_CONNECTIONS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name <> 'bench'
"""


@frozen
class Counters:
    """What has happened so far."""

    transactions: int
    log_bytes: int
    database_cpu: float
    node_cpu: tuple[float, ...]
    at: float


class Meter:
    """Counts in the database and in the processes of a cluster. Open it in Trio."""

    def __init__(
        self, cluster: Cluster, server: PostgresServer, database_pid: int, listener: object
    ) -> None:
        self._cluster, self._server, self._pid = cluster, server, database_pid
        self._listener = listener

    def look(self) -> Counters:
        """Return the counters now."""
        [(transactions, log_bytes)] = self._server.execute(_COUNTERS, self._cluster.url)
        return Counters(
            int(str(transactions)),
            int(str(log_bytes)),
            tree_seconds(self._pid),
            tuple(tree_seconds(each.pid) for each in self._cluster.servers),
            trio.current_time(),
        )

    def connections(self) -> int:
        """Return how many connections the nodes have."""
        return int(str(self._server.execute(_CONNECTIONS, self._cluster.url)[0][0]))

    def notices(self) -> int:
        """Return how many notices have come since the last call, and forget them."""
        return len(list(self._listener.notifies(timeout=0.5)))  # type: ignore[attr-defined]  # psycopg is not installed everywhere


@contextmanager
def metered(cluster: Cluster, server: PostgresServer, database_pid: int) -> Iterator[Meter]:
    """Listen to the notices of all nodes, too."""
    import psycopg  # noqa: PLC0415 - not installed everywhere

    with psycopg.connect(cluster.url, autocommit=True, application_name="bench") as listener:
        for (node,) in server.execute("SELECT node FROM nodes", cluster.url):
            listener.execute(f"LISTEN {channel_of(str(node))}".encode())
        yield Meter(cluster, server, database_pid, listener)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nodes")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rate", type=float, default=50.0, help="tokens per second of each run")
    parser.add_argument("--tokens", type=int, default=500, help="tokens of each run")
    options = parser.parse_args()
    load = f"tokens={options.tokens} rate={options.rate:g} stamp=1 mode=async"
    with measured_postgres() as (server, pid), tempfile.TemporaryDirectory() as folder:
        measure_limits(server.create_database())
        print_line(HEADING)
        for count in NODES:
            path, url = Path(folder) / str(count), server.create_database()
            with (
                run_cluster(path, url, count, SETTINGS, AGENT) as cluster,
                metered(cluster, server, pid) as meter,
            ):
                trio.run(_report, f"idle, {count} nodes", meter, partial(trio.sleep, IDLE_SECONDS))
                if count == LOADED:
                    trio.run(_measure_loads, cluster, meter, load, options)
    return 0


def measure_limits(url: str) -> None:
    """Print how many small transactions and notices this database takes, from several connections."""
    import psycopg  # noqa: PLC0415 - not installed everywhere

    def repeat(statement: bytes) -> int:
        with psycopg.connect(url, autocommit=True) as connection:
            end, number = time.monotonic() + LIMIT_SECONDS, 0
            while time.monotonic() < end:
                connection.execute(statement)
                number += 1
        return number

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE small (n INT)")
        connection.execute("LISTEN busy")
        for title, statement in (
            ("small commits", b"INSERT INTO small VALUES (1)"),
            ("notices", b"SELECT pg_notify('busy', 'x')"),
        ):
            with ThreadPoolExecutor(CLIENTS) as pool:
                done = sum(pool.map(repeat, [statement] * CLIENTS))
            print_line(f"{title} per second, {CLIENTS} connections: {done / LIMIT_SECONDS:,.0f}")


async def _measure_loads(
    cluster: Cluster, meter: Meter, load: str, options: argparse.Namespace
) -> None:
    """Measure the same runs without readers, with readers on their node, and with readers on the other."""
    owner, runs = cluster.nodes[0], options.runs
    await read_runs([*cluster.nodes], owner, "tokens=5", 4)  # so that nothing is measured cold
    works: dict[str, Callable[[], Awaitable[object]]] = {
        f"{runs} runs": partial(_run, owner, load, runs)
    }
    for where, reader in zip(("on their node", "on the other node"), cluster.nodes, strict=True):
        works[f"{runs} runs, read {where}"] = partial(read_runs, [reader], owner, load, runs)
    for title, work in works.items():
        await _report(title, meter, work, runs * options.tokens)


async def _report(
    title: str, meter: Meter, work: Callable[[], Awaitable[object]], tokens: int = 0
) -> None:
    """Measure some work, and print a line of the table."""
    await trio.sleep(SETTLE_SECONDS)
    meter.notices()
    before = meter.look()
    await work()
    after, connections, notices = meter.look(), meter.connections(), meter.notices()
    await trio.sleep(SETTLE_SECONDS)
    settled = meter.look()
    seconds, log_bytes = after.at - before.at, after.log_bytes - before.log_bytes
    # Idle nodes go on while the statistics settle.
    counted = seconds if tokens else settled.at - before.at
    database = (after.database_cpu - before.database_cpu) / seconds
    pairs = zip(before.node_cpu, after.node_cpu, strict=True)
    nodes = [f"{(end - begin) / seconds:>9.1%}" for begin, end in pairs]
    print_line(
        f"{title:<36} {seconds:>8.1f} {connections:>12}"
        f" {(settled.transactions - before.transactions) / counted:>15.1f}"
        f" {notices / seconds:>10.1f} {log_bytes / seconds / 1000:>9.1f}"
        f" {log_bytes / tokens if tokens else 0:>12.1f} {database:>13.1%} {' '.join(nodes)}"
    )


async def _run(owner: Address, load: str, runs: int) -> None:
    for _ in range(runs):
        await begin_run(owner, load)
    await wait_idle(owner)


if __name__ == "__main__":
    sys.exit(main())
