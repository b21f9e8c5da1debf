"""Hypercorn's own command with several workers on one database: each worker is a node."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cluster.load import RESPONSES
from tests.cluster.nodes import AGENT
from tests.cluster.races import without_comments
from tests.cluster.records import Records
from tests.support.dialect_frames import numbered
from tests.support.postgres import PostgresServer
from tests.support.server_process import (
    TIMEOUT,
    LaunchOptions,
    ServerProcess,
    begin,
    eventually,
    kill,
    processes,
)

COMMAND = (
    *(sys.executable, "-m", "hypercorn", "--worker-class", "trio", "--workers", "2"),
    *("--graceful-timeout", "10", "--bind", "127.0.0.1:0", "hermes_trio.asgi:app"),
)
RUNNING = "[INFO] Running on http://"
LONG = "tokens=100000 rate=50"


@pytest.fixture
def server(durable_postgres: PostgresServer, tmp_path: Path) -> Iterator[ServerProcess]:
    """Two workers, once both have joined the database."""
    settings = {
        "agent": AGENT[1],
        "api_key": "a-key-for-hypercorn",
        "store": durable_postgres.create_database(),
        "drain_seconds": 0.5,
    }
    server = begin(
        LaunchOptions(tmp_path, settings=settings, command=COMMAND), start_new_session=True
    )
    try:
        eventually(lambda: server.log.count(RUNNING) == 2 or server.process.poll() is not None)
        assert server.process.poll() is None, server.log
        server.url = server.log.partition("Running on ")[2].split()[0]
        yield server
    finally:
        kill(server)


def owners(server: ServerProcess) -> dict[str, str]:
    """The runs and the nodes that execute or have executed them."""
    url = str(server.plan.settings["store"])
    return dict(Records(url).rows("SELECT run_id, owner FROM runs"))


def clients_of_workers(server: ServerProcess, stack: ExitStack) -> list[httpx2.Client]:
    """One client for each worker: its connection stays with the worker that accepted it."""
    found: dict[int, httpx2.Client] = {}

    def connect() -> bool:
        client = httpx2.Client(
            base_url=server.url,
            headers={"Authorization": f"Bearer {server.key}"},
            limits=httpx2.Limits(max_connections=1),
            trust_env=False,
            timeout=TIMEOUT,
        )
        stack.enter_context(client)
        found.setdefault(client.get("/health/detailed").json()["pid"], client)
        return len(found) == 2

    eventually(connect)
    return list(found.values())


def begin_response(client: httpx2.Client, text: str) -> str:
    answer = client.post(RESPONSES, json={"input": text, "background": True})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def read_stream(client: httpx2.Client, run_id: str, **query: Any) -> bytes:
    answer = client.get(f"{RESPONSES}/{run_id}", params={"stream": True, **query})
    assert answer.status_code == 200, answer.text
    return answer.content


def test_each_worker_is_a_node(server: ServerProcess) -> None:
    with ExitStack() as stack:
        one, other = clients_of_workers(server, stack)
        run_ids = [begin_response(client, "tokens=40 rate=40") for client in (one, other)]
        assert len({owners(server)[run_id] for run_id in run_ids}) == 2
        for run_id in run_ids:
            # One of the two follows the run of the other worker, live.
            whole, followed = (read_stream(client, run_id) for client in (one, other))
            assert without_comments(whole) == without_comments(followed)
            frames = numbered(whole)
            middle = len(frames) // 2
            later = {number: frame for number, frame in frames.items() if number > middle}
            for client in (one, other):
                assert numbered(read_stream(client, run_id, starting_after=middle)) == later
        stopped = begin_response(one, LONG)
        assert other.post(f"{RESPONSES}/{stopped}/cancel").json()["status"] == "cancelled"
    assert server.complaints("") == [], server.log


@pytest.mark.parametrize("to_group", [False, True], ids=["master", "group"])
def test_a_shutdown_ends_the_runs_of_every_worker(server: ServerProcess, to_group: bool) -> None:
    with ExitStack() as stack:
        run_ids = [begin_response(each, LONG) for each in clients_of_workers(server, stack)]
    if to_group:
        os.killpg(server.pid, signal.SIGTERM)
    else:
        server.signal()
    assert server.wait() == 0, server.log
    eventually(lambda: processes(server.mark) == [], 10)
    assert server.complaints("") == [], server.log
    records = Records(str(server.plan.settings["store"]))
    ends = records.rows("SELECT run_id, reason FROM runs ORDER BY run_id")
    assert ends == [(run_id, "server_shutdown") for run_id in sorted(run_ids)]
    assert records.rows("SELECT node FROM nodes") == []
    assert records.violations() == []
