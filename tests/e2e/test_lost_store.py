"""The database of a running server is deleted or replaced: it says so, and stores nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx2
import pytest

from tests.support.server_process import (
    TIMEOUT,
    LaunchOptions,
    ServerProcess,
    eventually,
    run,
    serving,
)

pytestmark = pytest.mark.xdist_group("e2e-lost-store")

EXPECTED = (
    "the store does not work|the store works again|was deleted or moved|was replaced|store failed"
)


def ready(server: ServerProcess) -> int:
    """Return the status of the readiness."""
    return server.get("/health/ready").status_code


def respond(server: ServerProcess) -> httpx2.Response:
    """Ask for a stored response."""
    headers = {"Authorization": f"Bearer {server.key}", "Connection": "close"}
    with httpx2.Client(trust_env=False, timeout=TIMEOUT) as client:
        body = {"model": "hermes-agent", "input": "hello"}
        return client.post(f"{server.url}/v1/responses", headers=headers, json=body)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_server_notices_that_its_database_is_gone(tmp_path: Path, is_replaced: bool) -> None:
    plan = LaunchOptions(tmp_path, ("--port", "0", "--agent", "demo"))
    with serving(plan, expected=EXPECTED) as server:
        path, away = plan.data_dir / "hermes.db", plan.data_dir / "hermes.db.away"
        assert respond(server).status_code == 200
        assert ready(server) == 200
        path.rename(away)
        if is_replaced:
            shutil.copyfile(away, path)
        assert eventually(lambda: ready(server) == 503, 5) < 3  # a second, on a busy machine
        refused = respond(server)
        assert refused.status_code == 503
        assert str(path) not in refused.text
        assert server.get("/health/live").status_code == 200
        assert "the store does not work" in server.log
        second = run(plan)
        assert second.returncode != 0
        assert "already open" in second.stderr
        away.replace(path)
        eventually(lambda: ready(server) == 200, 5)
        assert respond(server).status_code == 200
