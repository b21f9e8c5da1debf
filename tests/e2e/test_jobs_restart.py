"""Jobs of a real server that is killed: what was missed runs once, and nothing runs twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.test_runs_restart import client_of
from tests.support.server_process import TIMEOUT, LaunchOptions, kill, serving, start

pytestmark = [pytest.mark.xdist_group("e2e-jobs-restart"), pytest.mark.slow]

POLL = 0.05


def create(client: httpx2.Client, prompt: str, seconds: float) -> str:
    """Create a job that is due once, in some seconds; return its id."""
    due = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
    answer = client.post("/api/jobs", json={"name": "j", "schedule": due, "prompt": prompt})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["job"]["id"])


def wait_for_runs(
    client: httpx2.Client, wanted: Callable[[list[Any]], object]
) -> list[dict[str, Any]]:
    """Wait until the runs of jobs satisfy a condition."""
    end = time.monotonic() + TIMEOUT
    while not wanted(runs := client.get("/v1/runs?kind=cron&order=asc").json()["data"]):
        assert time.monotonic() < end, runs
        time.sleep(POLL)
    return list(runs)


def test_a_job_whose_server_is_killed(tmp_path: Path) -> None:
    plan = LaunchOptions(tmp_path)
    server = start(plan)
    try:
        with client_of(server) as client:
            begun = create(client, "/sleep 600", 0)
            wait_for_runs(client, bool)
            missed = create(client, "hello", 1)
    finally:
        kill(server)
    time.sleep(1.5)  # the time of the second job passes
    for _ in range(2):  # the second time, nothing is left to do
        with serving(plan, expected="recovered a run") as server, client_of(server) as client:
            runs = wait_for_runs(client, lambda runs: len(runs) == 2 and not is_live(runs))
            assert [(run["job_id"], run["status"]) for run in runs] == [
                (begun, "failed"),
                (missed, "completed"),
            ]
            assert runs[0]["reason"] == "process_died"
            jobs = client.get("/api/jobs?include_disabled=true").json()["jobs"]
            assert [(job["id"], job["state"], job["last_status"]) for job in jobs] == [
                (begun, "completed", "error"),
                (missed, "completed", "ok"),
            ]


def is_live(runs: list[Any]) -> bool:
    return any(run["status"] == "running" for run in runs)
