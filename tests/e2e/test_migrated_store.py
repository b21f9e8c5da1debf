"""A server on SQLite is killed, its records are moved to PostgreSQL, and a server there goes on with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import AGENTS
from tests.e2e.test_runs_restart import begun, client_of, followed
from tests.support.postgres import PostgresServer
from tests.support.run_stream_rules import check_whole
from tests.support.server_process import MODULE, LaunchOptions, kill, run, serving, start

pytestmark = [pytest.mark.xdist_group("e2e-migrated-store"), pytest.mark.slow]
MIGRATE = (*MODULE[:3], "store", "migrate")


def test_runs_are_the_same_and_those_in_progress_are_ended(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    target = postgres_server.create_database()
    before = start(LaunchOptions(tmp_path, ("--agent", AGENTS)))
    try:
        with client_of(before) as client:
            ended = begun(client, "tokens=20")
            heard = followed(client, ended)
            shown = client.get(f"/v1/runs/{ended}").json()
            live = begun(client, "!silent")
    finally:
        kill(before)

    source = f"sqlite:///{tmp_path}/data/hermes.db"
    moved = run(LaunchOptions(tmp_path, command=MIGRATE), (source, target))
    assert (moved.returncode, moved.stderr) == (0, "")
    assert "were moved and verified" in moved.stdout

    plan = LaunchOptions(tmp_path, ("--agent", AGENTS), {"store": target})
    recovered = "recovered a run of a dead process"
    with serving(plan, expected=recovered) as server, client_of(server) as client:
        assert client.get(f"/v1/runs/{ended}").json() == shown
        assert followed(client, ended) == heard
        found = client.get(f"/v1/runs/{live}").json()
        assert (found["status"], found["reason"]) == ("failed", "process_died")
        check_whole(followed(client, live))
