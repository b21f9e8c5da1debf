"""``hermes-trio serve --workers 2`` on PostgreSQL: one address, one key, one set of numbers."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from attrs import evolve

from tests.support.postgres import PostgresServer, run_postgres
from tests.support.server_process import (
    LaunchOptions,
    ServerProcess,
    begin,
    eventually,
    has_ended,
    kill,
    processes,
    run,
    serving,
)
from tests.support.socket_client import open_chat_stream

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("e2e-workers")]

ENDED = r"a worker ended"


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


@pytest.fixture
def plan(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LaunchOptions]:
    """Two workers, which must leave nothing in the temporary directory, however they end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield LaunchOptions(
        tmp_path,
        ("--workers", "2"),
        {"store": postgres.create_database(), "drain_seconds": 1, "max_runs": 100},
    )
    assert list(tmp_path.glob("hermes-trio-*")) == []


def is_ready(server: ServerProcess) -> bool:
    return server.get("/health/ready").status_code == 200


def wait_for_two(server: ServerProcess, without: int = 0) -> set[int]:
    """Wait until two processes other than a dead one have answered; return them."""
    found: set[int] = set()

    def both() -> bool:
        found.add(server.health()["pid"])
        return len(found - {without}) == 2

    eventually(lambda: is_ready(server))
    eventually(both)
    return found - {without}


def chat(server: ServerProcess, stream: bool = False) -> httpx2.Response:
    """Run one turn on a connection of its own."""
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": stream}
    headers = {"Authorization": f"Bearer {server.key}", "Connection": "close"}
    with httpx2.Client(trust_env=False, timeout=30) as client:
        return client.post(f"{server.url}/v1/chat/completions", json=body, headers=headers)


def metrics(server: ServerProcess) -> dict[str, float]:
    """The samples by their full names."""
    lines = [line for line in server.get("/metrics").text.splitlines() if line[:1] != "#"]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_two_workers_are_one_server(plan: LaunchOptions) -> None:
    with serving(plan) as server:
        assert server.greeting.count("hermes-trio serves") == 1
        assert "with 2 workers" in server.greeting
        assert server.shown_key == server.key
        workers = wait_for_two(server)
        assert server.pid not in workers
        answers = [chat(server) for _ in range(20)]
        assert {answer.status_code for answer in answers} == {200}
        seen = metrics(server)
        assert seen['hermes_trio_runs_total{reason="",status="completed"}'] == 20
        assert seen["hermes_trio_run_duration_seconds_count"] == 20
        assert (seen["hermes_trio_workers"], seen["hermes_trio_workers_answering"]) == (2, 2)
        listed = server.get("/api/status").json()["server"]["workers"]
        assert [each["number"] for each in listed] == [1, 2]
        assert sum(each["is_this"] for each in listed) == 1
        assert all(each["memory_bytes"] and not each["not_ready"] for each in listed)
        assert {
            f'process_start_time_seconds{{worker="{number}"}}' for number in (1, 2)
        } <= seen.keys()
    assert set(re.findall(r"worker=(\d)", server.log)) == {"1", "2"}


def test_workers_share_a_unix_socket(plan: LaunchOptions, tmp_path: Path) -> None:
    path = tmp_path / "server.sock"
    both_addresses = evolve(plan, flags=(*plan.flags, "--unix", str(path)))
    with serving(both_addresses, expected=ENDED) as server:
        workers = wait_for_two(server)
        found: set[int] = set()

        def both() -> bool:
            transport = httpx2.HTTPTransport(uds=str(path))
            headers = {"Authorization": f"Bearer {server.key}"}
            with httpx2.Client(transport=transport, base_url="http://any.name") as client:
                found.add(client.get("/health/detailed", headers=headers).json()["pid"])
            return found == workers

        eventually(both)
        victim = min(workers)
        os.kill(victim, signal.SIGKILL)
        workers = wait_for_two(server, without=victim)
        found.clear()
        eventually(both)
    assert not path.exists()


def test_a_killed_worker_is_replaced(plan: LaunchOptions) -> None:
    with serving(plan, expected=ENDED) as server:
        victim, other = sorted(wait_for_two(server))
        os.kill(victim, signal.SIGKILL)
        after = wait_for_two(server, without=victim)
        assert other in after
        assert "killed by signal 9" in server.log


def test_a_drain_lets_the_runs_of_all_workers_end(plan: LaunchOptions) -> None:
    patient = evolve(plan, settings={**plan.settings, "drain_seconds": 20, "agent": "synthetic"})
    with serving(patient) as server, ExitStack() as stack:
        workers = wait_for_two(server)
        streams = [
            stack.enter_context(open_chat_stream(server, f"s{number}", "tokens=30 rate=20"))
            for number in range(6)
        ]
        for stream in streams:
            stream.until("t000002")
        # As a service manager does, which signals every process of the service.
        server.signal()
        for pid in workers:
            os.kill(pid, signal.SIGTERM)
        for stream in streams:
            *_, last = stream.rest()
            assert last == "[DONE]"
        assert server.wait() == 0
        assert "asked again" not in server.log
        assert server.log.count("active_runs=") == 2
    assert "server_shutdown" not in server.log


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR1])
def test_workers_do_not_outlive_the_supervisor(plan: LaunchOptions, number: int) -> None:
    server = begin(plan)
    try:
        eventually(lambda: server.log.count("a worker is ready") == 2)
        assert len(processes(server.mark)) == 3
        server.process.send_signal(number)
        assert has_ended(server.process, 10)
        eventually(lambda: processes(server.mark) == [], 20)
    finally:
        kill(server)


def test_a_configuration_that_no_worker_can_use_is_one_line(plan: LaunchOptions) -> None:
    done = run(plan, ["--agent", "json:no_such_factory"])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("Error: agent: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("store", ["memory:", "sqlite:///x.db", ""])
def test_other_stores_are_refused(tmp_path: Path, store: str) -> None:
    done = run(LaunchOptions(tmp_path, ("--workers", "2"), {"store": store}))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: workers: 2 processes cannot share")
    assert "postgresql://" in line
