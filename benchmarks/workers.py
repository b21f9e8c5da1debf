"""``python -m benchmarks.workers``.

Measure one and two worker processes on PostgreSQL under the same loads, beside Starlette on uvicorn
with two workers. Nothing is pinned to a core: servers, database and client share the machine. So the
processor time of each is measured, too. Needs PostgreSQL on this machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import trio
from attrs import evolve, frozen

from benchmarks import loads
from benchmarks.contenders import BY_NAME, Address, order_for
from benchmarks.figures import Result, tabulate
from benchmarks.loads import Load
from benchmarks.measuring import ask, short, warm_up
from benchmarks.startup import AGENT, SETTINGS, free_port, running, until_healthy
from benchmarks.stats import ratio
from benchmarks.store import print_line
from benchmarks.trees import tree_seconds
from tests.support.postgres import PostgresServer, run_postgres
from tests.support.server_process import processes

LOADS = ("churn", "100x50", "1000x10")
MIN_RATIO = 1.7  # short turns per second, two workers over one
WORKERS_LOAD_SECONDS = 2.0  # until every worker has answered
HEADING = (
    f"{'load':<8} {'server':<22} {'turns/s':>8} {'lag p50':>8} {'lag p99':>8} {'first p99':>10}"
    f" {'server':>8} {'database':>9} {'client':>7} {'cores':>6} {'failed':>7}"
)
UNITS = f"{'':<31} {'':>8} {'ms':>8} {'ms':>8} {'ms':>10} {'CPU, ms per turn':>26} {'used':>6}"


@frozen
class Server:
    """A server to be measured."""

    name: str
    workers: int
    is_ours: bool = True

    def command(self, plain_python: str, port: int) -> Sequence[str]:
        """Return the command that starts it."""
        if not self.is_ours:
            plain = ("-m", "benchmarks.servers.plain", str(port), str(self.workers))
            return (plain_python, *plain)
        serve = ("-m", "hermes_trio", "serve", "--agent", AGENT, "--port", str(port))
        return (sys.executable, *serve, "--workers", str(self.workers))


ONE, TWO = Server("one process", 1), Server("two workers", 2)
PLAIN = Server("Starlette, two workers", 2, is_ours=False)


@contextmanager
def measured_postgres() -> Iterator[tuple[PostgresServer, int]]:
    """Run PostgreSQL; yield it with its process id."""
    with run_postgres("max_connections=200", is_safe=True) as server:
        yield server, min(processes(f"-k\0{server.directory}"))


def main() -> int:
    """Measure, print, and return the exit code: 1 if turns failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers")
    parser.add_argument("--only", action="append", default=[], choices=LOADS, metavar="LOAD")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument(
        "--plain-python", default="", help="interpreter that has Starlette; else left out"
    )
    options = parser.parse_args()
    servers = (ONE, TWO, *([PLAIN] if options.plain_python else []))
    print_line(f"{os.cpu_count()} cores")
    print_line(f"{HEADING}\n{UNITS}")
    results: list[Result] = []
    with measured_postgres() as (database, database_pid):
        for load in loads.by_name(options.only or LOADS):
            for number in range(options.repeat * len(servers)):
                server = servers[number % len(servers)]
                bench = _Bench(server, load, database, database_pid, options.plain_python)
                results.append(trio.run(bench.measure))
                print_line(_row(results[-1]))
    return _judge(results)


@frozen
class _Bench:
    """One measurement."""

    server: Server
    load: Load
    database: PostgresServer
    database_pid: int
    plain_python: str

    async def measure(self) -> Result:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            async with self._serving(Path(folder)) as address:
                contender = BY_NAME["ours" if self.server.is_ours else "starlette"]
                order = evolve(order_for(self.load, contender, address), core=-1)
                small = order_for(short(self.load), contender, address)
                await ask(evolve(warm_up(small), core=-1))
                before = tree_seconds(address.pid), tree_seconds(self.database_pid)
                report = await ask(order)
                server = tree_seconds(address.pid) - before[0]
                database = tree_seconds(self.database_pid) - before[1]
        client = report.busy * report.seconds
        figures = {
            "turns_per_s": ratio(report.finished, report.seconds),
            "lag_p50": report.lag.p50,
            "lag_p99": report.lag.p99,
            "first_p99": report.first.p99,
            "server_cpu": ratio(1e3 * server, report.started),
            "database_cpu": ratio(1e3 * database, report.started),
            "client_cpu": ratio(1e3 * client, report.started),
            "cores": ratio(server + database + client, report.seconds),
            "failed": float(report.failed + report.unanswered),
        }
        return Result(self.load.name, self.server.name, figures, report.complaint)

    @asynccontextmanager
    async def _serving(self, folder: Path) -> AsyncIterator[Address]:
        port = free_port()
        settings = {**SETTINGS, "store": self.database.create_database()}
        command = self.server.command(self.plain_python, port)
        async with running(command, folder, settings) as process:
            await until_healthy(port, process, folder)
            await trio.sleep(WORKERS_LOAD_SECONDS)
            yield Address(port, process.pid)
            process.terminate()
            with trio.move_on_after(20):
                await process.wait()


def _row(result: Result) -> str:
    f = result.figures
    return (
        f"{result.load:<8} {result.contender:<22} {f['turns_per_s']:>8.1f} {f['lag_p50']:>8.1f}"
        f" {f['lag_p99']:>8.1f} {f['first_p99']:>10.1f} {f['server_cpu']:>8.2f} {f['database_cpu']:>9.2f}"
        f" {f['client_cpu']:>7.2f} {f['cores']:>6.2f} {f['failed']:>7.0f} {result.complaint[:200]}"
    )


def _judge(results: Sequence[Result]) -> int:
    """Print the medians, and compare two workers with one."""
    table = tabulate(results)
    print_line("\nmedians:")
    for (load, name), cell in table.cells.items():
        print_line(_row(Result(load, name, {key: value.median for key, value in cell.items()})))
    for load in dict.fromkeys(load for load, _ in table.cells):
        cpu, speed = (
            ratio(table.get(load, TWO.name, key) or 0.0, table.get(load, ONE.name, key) or 0.0)
            for key in ("server_cpu", "turns_per_s")
        )
        print_line(
            f"{load}: two workers over one: turns/s x {speed:.2f}, server CPU per turn x {cpu:.2f}"
        )
    speed = ratio(
        table.get("churn", TWO.name, "turns_per_s") or 0.0,
        table.get("churn", ONE.name, "turns_per_s") or 0.0,
    )
    print_line(f"short turns/s, two workers over one: {speed:.2f}, wanted {MIN_RATIO:g}")
    return int(any(result.figures["failed"] for result in results))


if __name__ == "__main__":
    sys.exit(main())
