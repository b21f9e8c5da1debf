"""Many readers of many runs, on every node at the same time; each gets every piece of text, in order."""

from __future__ import annotations

import re
import time

import trio
from attrs import define, field

from benchmarks.stats import spread
from tests.cluster.exchange import Address, ask, exchange
from tests.cluster.load import RUNS
from tests.cluster.nodes import Cluster
from tests.cluster.races import without_comments

TOKENS, RATE = 100, 50
TOKEN = re.compile(rb"(\d{9,}) t(\d{6})")


@define
class Reader:
    """One client of one run, and how late each piece of text was."""

    is_remote: bool
    run_id: str
    numbers: list[int] = field(factory=list)
    lags: list[int] = field(factory=list)  # nanoseconds
    body: bytes = b""

    async def read(self, node: Address) -> None:
        """Read the stream to its end."""
        parsed, asked_at = 0, time.monotonic_ns()
        async with exchange(node, "GET", f"{RUNS}/{self.run_id}/events") as connection:
            while await connection.read():
                now, end = time.monotonic_ns(), connection.body.rfind(b"\n\n") + 2
                for stamp, number in TOKEN.findall(bytes(connection.body[parsed:end])):
                    if int(number) == len(self.numbers) + 1:  # the end repeats the text
                        self.numbers.append(int(number))
                        if int(stamp) >= asked_at:
                            self.lags.append(now - int(stamp))
                parsed = max(parsed, end)
            self.body = bytes(connection.body)


async def read_on_all_nodes(cluster: Cluster, runs: int) -> list[str]:
    """Read runs of one node there and on the others, live; print the delays, return what went wrong."""
    owner, others = cluster.nodes[0], cluster.nodes[1:]
    readers: list[Reader] = []
    with trio.fail_after(60 + runs):
        async with trio.open_nursery() as nursery:
            for number in range(runs):
                body = {"input": f"tokens={TOKENS} rate={RATE} stamp=1 mode=async"}
                run_id = (await ask(owner, "POST", RUNS, body)).json()["run_id"]
                for node in (owner, others[number % len(others)]):
                    reader = Reader(node is not owner, run_id)
                    readers.append(reader)
                    nursery.start_soon(reader.read, node)
    for title, is_remote in (("on the owner", False), ("on other nodes", True)):
        lags = [lag for reader in readers if reader.is_remote is is_remote for lag in reader.lags]
        print(f"{runs} readers {title}, delay in ms: {spread(lags)}")  # noqa: T201 - figures
    return [
        problem
        for number in range(0, len(readers), 2)
        for problem in _check(*readers[number : number + 2])
    ]


def _check(local: Reader, remote: Reader) -> list[str]:
    found = [
        f"run {reader.run_id}: {len(reader.numbers)} of {TOKENS} pieces came in order"
        for reader in (local, remote)
        if reader.numbers != list(range(1, TOKENS + 1))
    ]
    if without_comments(local.body) != without_comments(remote.body):
        found.append(f"{local.run_id}: another node shows another stream")
    return found
