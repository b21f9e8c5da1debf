"""Profile a short turn: ``python -m benchmarks.profiling [sync|async]``.

The server handles the load "churn" under a profiler. The profiler about doubles the seconds, so they
only show how the libraries compare; the number of calls does not depend on the machine.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from pathlib import Path

import trio

from benchmarks import loads
from benchmarks.contenders import BY_NAME, SERVER_CORE, Address, Contender, order_for
from benchmarks.measuring import ask, short, warm_up
from benchmarks.startup import AGENT, PINNED, free_port, running, until_healthy

TURNS = 3_000
SHOWN = 0.01  # of the whole: what takes less is summed up


async def main(mode: str) -> None:
    """Profile, and print the table."""
    contender = BY_NAME["ours-async" if mode == "async" else "ours"]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        found = await profiled(contender, Path(folder))
    for line in table(found):
        sys.stdout.write(f"{line}\n")


async def profiled(contender: Contender, folder: Path) -> list[tuple[str, int, float]]:
    """Return the libraries with the calls and seconds of all turns."""
    [load] = loads.by_name(("churn",))
    port, file = free_port(), folder / "profile.json"
    command = (sys.executable, "-m", "benchmarks.profiled", str(file), "serve", "--agent", AGENT)
    async with running(
        [*PINNED, str(SERVER_CORE), *command, "--port", str(port)], folder
    ) as process:
        await until_healthy(port, process, folder)
        address = Address(port, process.pid)
        await ask(warm_up(order_for(short(load), contender, address)))
        process.send_signal(signal.SIGUSR1)
        report = await ask(order_for(load, contender, address))
        process.send_signal(signal.SIGUSR1)
        assert report.finished == TURNS == load.turns, report
        await process.wait()
        return [tuple(entry) for entry in json.loads(file.read_text())]


def table(found: list[tuple[str, int, float]]) -> list[str]:
    """Return the libraries as a Markdown table."""
    calls, seconds = sum(entry[1] for entry in found), sum(entry[2] for entry in found)
    shown = [entry for entry in found if entry[2] / seconds >= SHOWN]
    rest = ("the rest", calls - sum(e[1] for e in shown), seconds - sum(e[2] for e in shown))
    rows = [*shown, rest, ("all", calls, seconds)]
    return ["| library | calls | share of the time |", "|---|---|---|"] + [
        f"| {name} | {count / TURNS:,.0f} | {spent / seconds:.0%} |" for name, count, spent in rows
    ]


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "sync")
