"""``python -m benchmarks.cluster``.

Measure the latency of readers of runs that another node executes, and whether the readers on the
owner are affected. Needs PostgreSQL on this machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import trio
from attrs import frozen

from benchmarks.client.orders import Order, Report, Request
from benchmarks.measuring import ask
from benchmarks.stats import ratio
from benchmarks.store import print_line
from tests.cluster.exchange import Address
from tests.cluster.exchange import ask as ask_node
from tests.cluster.nodes import Cluster, run_cluster, wait_idle
from tests.support.postgres import run_postgres

AGENT = ("--agent", "benchmarks.agent:factory")
SETTINGS = {"lease_seconds": 8}
SILENCE = 2.0  # seconds before the first token, in which all readers connect
MAX_ADDED_MS = 120.0  # added latency of a reader on another node, p99
MAX_RATIO = 1.2  # lag p99 of the owner's readers, with other readers elsewhere over without


@frozen
class Figures:
    """What the clients saw in one repeat."""

    alone: Report  # readers on the owner, and nowhere else
    own: Report  # the same, with as many on the other node
    remote: Report  # those

    @property
    def complaints(self) -> list[str]:
        """Return what was not delivered."""
        return [
            f"{report.finished} of {report.started} streams came to their end: {report.complaint}"
            for report in (self.alone, self.own, self.remote)
            if report.finished != report.started
        ]

    @property
    def added(self) -> float:
        """Return the latency that another node adds, p99 in milliseconds."""
        return self.remote.lag.p99 - self.alone.lag.p99

    def __str__(self) -> str:
        """Return a row of the table."""
        lags = (self.alone.lag, self.own.lag, self.remote.lag)
        columns = "".join(f"{lag.p50:>9.1f} {lag.p99:>9.1f}" for lag in lags)
        return f"{columns} {self.added:>9.1f} {ratio(self.own.lag.p99, self.alone.lag.p99):>9.2f}"


HEADER = f"{'owner, alone':>19}{'owner, both':>19}{'other node':>19}\n{'p50 ms':>9} {'p99 ms':>9}"
HEADER += f"{'p50 ms':>9} {'p99 ms':>9}" * 2 + f" {'added':>9} {'ratio':>9}"


def main() -> int:
    """Measure, print, and return the exit code: 1 if something was lost, or a threshold is not met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rate", type=float, default=50.0, help="tokens per second of each run")
    parser.add_argument("--tokens", type=int, default=500, help="tokens of each run")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    load = f"tokens={options.tokens} rate={options.rate:g} stamp=1 mode=async wait={SILENCE:g}"
    print_line(HEADER)
    with (
        run_postgres("max_connections=200", is_safe=True) as server,
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        run_cluster(Path(folder), server.create_database(), 2, SETTINGS, AGENT) as cluster,
    ):
        repeats = [trio.run(_measure, cluster, load, options.runs) for _ in range(options.repeat)]
    return _judge(repeats)


def _judge(repeats: Sequence[Figures]) -> int:
    """Compare the medians with the thresholds."""
    complaints = [complaint for figures in repeats for complaint in figures.complaints]
    added = statistics.median(figures.added for figures in repeats)
    both = statistics.median(figures.own.lag.p99 for figures in repeats)
    alone = statistics.median(figures.alone.lag.p99 for figures in repeats)
    for text, value, bound in (
        ("added latency of readers on another node, p99 in ms", added, MAX_ADDED_MS),
        ("lag p99 of the owner's readers, with others elsewhere over without", ratio(both, alone), MAX_RATIO),
    ):  # fmt: skip
        verdict = "met" if value <= bound else "not met"
        print_line(f"{text}: {value:.2f} <= {bound:g}: {verdict}")
        complaints += [text] if value > bound else []
    for complaint in complaints:
        print_line(f"failed: {complaint}")
    return int(bool(complaints))


async def _measure(cluster: Cluster, load: str, runs: int) -> Figures:
    """Measure the same load twice: with readers on the owner only, and with as many on the other node."""
    owner, other = cluster.nodes
    await read_runs([owner, other], owner, "tokens=5", 4)  # so that nothing is measured cold
    (alone,) = await read_runs([owner], owner, load, runs)
    own, remote = await read_runs([owner, other], owner, load, runs)
    figures = Figures(alone, own, remote)
    print_line(str(figures))
    return figures


async def read_runs(readers: list[Address], owner: Address, load: str, runs: int) -> list[Report]:
    """Begin runs on a node, and read each of them to its end on some nodes; one client process for each."""
    ids = [await begin_run(owner, load) for _ in range(runs)]
    reports: dict[int, Report] = {}

    async def read(number: int, node: Address) -> None:
        headers = {"authorization": f"Bearer {node.key}"}
        request = Request("GET", "/v1/runs/{id}/events", headers=headers)
        reports[number] = await ask(Order("127.0.0.1", node.port, request, runs, ids=ids))

    async with trio.open_nursery() as nursery:
        for number, node in enumerate(readers):
            nursery.start_soon(read, number, node)
    await wait_idle(owner)
    return [reports[number] for number in range(len(readers))]


async def begin_run(owner: Address, load: str) -> str:
    reply = await ask_node(owner, "POST", "/v1/runs", {"input": load})
    return str(reply.json()["run_id"])


if __name__ == "__main__":
    sys.exit(main())
