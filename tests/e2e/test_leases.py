"""Two servers on one PostgreSQL database: one dies or is frozen, and the other ends its runs."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.test_runs_restart import client_of
from tests.support.dialect_frames import numbered
from tests.support.postgres import PostgresServer
from tests.support.server_process import (
    LaunchOptions,
    ServerProcess,
    eventually,
    kill,
    serving,
    start,
)

pytestmark = [pytest.mark.xdist_group("e2e-leases"), pytest.mark.slow]

LEASE = 3.0
EXPECTED = (
    "recovered a run of a dead process|run was taken over|a stream was cut off"
    "|the lease is not renewed|the lease had lapsed|the lease is renewed again"
)
LOAD = {"input": "tokens=1000000 rate=500"}


@pytest.fixture
def plans(tmp_path: Path, postgres_server: PostgresServer) -> list[LaunchOptions]:
    """How to start two servers with the same keys and records."""
    settings = {
        "store": postgres_server.create_database(),
        "api_key": secrets.token_hex(16),
        "lease_seconds": LEASE,
    }
    return [
        LaunchOptions(tmp_path / name, ("--agent", "synthetic"), settings) for name in ("a", "b")
    ]


def has_ended(client: httpx2.Client, run_id: str) -> bool:
    return client.get(f"/v1/runs/{run_id}").json()["status"] not in {"queued", "running"}


def events(client: httpx2.Client, run_id: str, last: int) -> bytes:
    answer = client.get(f"/v1/runs/{run_id}/events?last_seq={last}")
    assert answer.status_code == 200, answer.text
    return answer.content


def read_some(pieces: Iterator[bytes]) -> bytes:
    seen = b""
    while b"t%06d" % 200 not in seen:
        seen += next(pieces)
    return seen


def read_rest(pieces: Iterator[bytes]) -> bytes:
    """Read a stream that breaks off."""
    seen = b""
    with suppress(httpx2.HTTPError):
        for piece in pieces:
            seen += piece
        pytest.fail("the stream ended properly")
    return seen


def check_resumed(client: httpx2.Client, run_id: str, received: bytes) -> None:
    """What was sent is the beginning of the stream; the rest, and the end, are at the other server."""
    seen, now = numbered(received), numbered(events(client, run_id, -1))
    both = seen.keys() & now.keys()
    assert len(both) > 100
    assert {number: seen[number] for number in both} == {number: now[number] for number in both}
    assert b"run.failed" not in received
    resumed = numbered(events(client, run_id, max(seen)))
    assert resumed == {number: now[number] for number in now.keys() - seen.keys()}
    assert b"process_died" in b"".join(resumed.values())


def test_the_runs_of_a_killed_server_are_ended_by_another(plans: list[LaunchOptions]) -> None:
    first = start(plans[0])
    try:
        with serving(plans[1], expected=EXPECTED) as second, client_of(second) as client:
            with client_of(first) as other:
                run_id = other.post("/v1/runs", json=LOAD).json()["run_id"]
                with other.stream("GET", f"/v1/runs/{run_id}/events") as answer:
                    pieces = answer.iter_bytes()
                    received = read_some(pieces)
                    assert not has_ended(client, run_id)
                    kill(first)
                    assert eventually(lambda: has_ended(client, run_id)) < LEASE + 3
                    received += read_rest(pieces)
            check_resumed(client, run_id, received)
    finally:
        kill(first)


def test_a_frozen_server_that_wakes_up_changes_nothing(plans: list[LaunchOptions]) -> None:
    with (
        serving(plans[0], expected=EXPECTED) as first,
        serving(plans[1], expected=EXPECTED) as second,
        client_of(first) as other,
        client_of(second) as client,
    ):
        run_id = other.post("/v1/runs", json=LOAD).json()["run_id"]
        with other.stream("GET", f"/v1/runs/{run_id}/events") as answer:
            pieces = answer.iter_bytes()
            received = read_some(pieces)
            first.signal(signal.SIGSTOP)
            try:
                eventually(lambda: has_ended(client, run_id))
                before = record(client, run_id), events(client, run_id, -1)
            finally:
                first.signal(signal.SIGCONT)
            received += read_rest(pieces)
        eventually(lambda: first.is_idle and is_ready(first))
        assert (record(client, run_id), events(client, run_id, -1)) == before
        assert record(other, run_id) == before[0]
        check_resumed(client, run_id, received)
        assert first.log.count("run was taken over") == 1


def record(client: httpx2.Client, run_id: str) -> Any:
    return client.get(f"/v1/runs/{run_id}").json()


def is_ready(server: ServerProcess) -> bool:
    return server.get("/health/ready").status_code == 200
