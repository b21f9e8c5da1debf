"""Start nodes on one database, stop them in every way, and wait for what they show of their state."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio
from attrs import define, field

from hermes_trio.keys import SECRET_FILE
from tests.cluster.exchange import Address, Reply, ask
from tests.support.server_process import TIMEOUT, LaunchOptions, ServerProcess, kill, start

LEASE = (
    8.0  # seconds, the default; with less, a busy machine starves nodes until they stop their runs
)
TAKE_OVER = LEASE + 3.0  # seconds in which the runs of a dead node must have ended
POLL = 0.05
NODES = 3
AGENT = ("--agent", "tests.cluster.agents:factory")
SETTINGS: Mapping[str, object] = {
    "lease_seconds": LEASE,
    "approval_seconds": 1.0,
    "interrupt_grace_seconds": 1.0,
    "max_runs": 1000,
    "max_runs_per_principal": 1000,
    "max_requests_per_principal": 1000,
}

# What a node may log when others die, or when the database does. Everything else is a complaint.
LOGGED_AFTER_A_DEATH = r"recovered a run|took over|taken over|lease|cut off before the end"
LOGGED_WITHOUT_DATABASE = (
    rf"{LOGGED_AFTER_A_DEATH}|store|database|saved|saving|logs could not|a turn is lost|listen"
    r"|expired records|could not be unlocked|slots could not"
)


@define
class Cluster:
    """Several nodes on one database."""

    folder: Path
    url: str
    settings: Mapping[str, object]
    flags: tuple[str, ...] = AGENT
    secret: str = field(factory=partial(secrets.token_hex, 32))
    servers: list[ServerProcess] = field(factory=list)
    _reported: set[str] = field(factory=set)

    @property
    def nodes(self) -> Sequence[Address]:
        """The addresses of all nodes."""
        return [Address.of(server) for server in self.servers]

    def others(self, number: int) -> list[Address]:
        """Return the addresses of all nodes but one."""
        return [node for other, node in enumerate(self.nodes) if other != number]

    def start(self, count: int) -> None:
        """Start nodes side by side, and wait until all accept requests."""
        plans = [self._plan(number) for number in range(count)]
        with ThreadPoolExecutor(count) as pool:
            launches = [pool.submit(start, plan) for plan in plans]
        try:
            self.servers += [launch.result() for launch in launches]
        except BaseException:
            for launch in launches:
                if launch.exception() is None:
                    kill(launch.result())
            raise

    def _plan(self, number: int) -> LaunchOptions:
        settings = {**self.settings, "store": self.url}
        plan = LaunchOptions(self.folder / f"node-{number}", self.flags, settings)
        plan.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        secret = plan.data_dir / SECRET_FILE  # all nodes need the same one
        secret.touch(0o600)
        secret.write_text(self.secret)
        return plan

    def restart(self, number: int) -> None:
        """Start a node again that has ended: another process, on another port."""
        kill(self.servers[number])
        self.servers[number] = start(self.servers[number].plan)

    def pause(self, number: int) -> None:
        """Stop a process so that it does nothing until it is continued; return when it has stopped."""
        process = self.servers[number].process
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self, number: int) -> None:
        """Continue a process that was stopped."""
        self.servers[number].process.send_signal(signal.SIGCONT)

    def complaints(self, expected: str) -> list[str]:
        """Return the new log lines of all nodes that report trouble, except expected ones."""
        lines = (line for server in self.servers for line in server.complaints(expected))
        new = [line for line in lines if line not in self._reported]
        self._reported.update(new)
        return new

    def close(self) -> None:
        """Kill what still runs."""
        for server in self.servers:
            kill(server)


@contextmanager
def run_cluster(
    folder: Path,
    url: str,
    count: int = NODES,
    settings: Mapping[str, object] | None = None,
    flags: tuple[str, ...] = AGENT,
) -> Iterator[Cluster]:
    """Run nodes on a database for the length of a block."""
    key = {"api_key": secrets.token_urlsafe(24)}
    cluster = Cluster(folder, url, {**SETTINGS, **key, **(settings or {})}, flags)
    try:
        cluster.start(count)
        yield cluster
    finally:
        cluster.close()


# -- waiting for what only polling can tell --


async def wait_for(
    node: Address, path: str, wanted: Callable[[Reply], bool], seconds: float = TIMEOUT
) -> Reply:
    """Ask until the reply satisfies a condition. Fails, and shows the last reply, when it does not in time."""
    end = time.monotonic() + seconds
    while not wanted(reply := await ask(node, "GET", path)):
        assert time.monotonic() < end, f"{path} on {node.port} after {seconds:.1f} s: {reply}"
        await trio.sleep(POLL)
    return reply


async def wait_ready(node: Address, seconds: float = TIMEOUT) -> None:
    """Wait until a node accepts runs."""
    await wait_for(node, "/health/ready", lambda reply: reply.status == 200, seconds)


async def wait_not_ready(node: Address, seconds: float = TIMEOUT) -> None:
    """Wait until a node says that it does not accept runs."""
    await wait_for(node, "/health/ready", lambda reply: reply.status == 503, seconds)


async def wait_idle(node: Address, seconds: float = TIMEOUT) -> None:
    """Wait until a node executes nothing."""
    await wait_for(node, "/health/detailed", _is_idle, seconds)


def _is_idle(reply: Reply) -> bool:
    health = reply.json() if reply.status == 200 else {}
    return bool(health) and not health["active_agents"] and not health["slots"]["in_use"]


ENDED = frozenset({"completed", "failed", "cancelled"})


async def wait_ended(node: Address, run_id: str, seconds: float = TIMEOUT) -> dict[str, Any]:
    """Wait until a node shows that a run has ended, and return the run."""
    path = f"/v1/runs/{run_id}"
    reply = await wait_for(node, path, lambda reply: _status(reply) in ENDED, seconds)
    return reply.json()


def _status(reply: Reply) -> str:
    assert reply.status in {0, 200, 503}, reply
    return str(reply.json()["status"]) if reply.status == 200 else ""
