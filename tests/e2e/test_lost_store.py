"""A running server whose database or disk fails: it is not ready, says why, and recovers by itself.

It must not need a request to notice.
"""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from tests.support.disks import fill_disk, small_disk
from tests.support.server_process import (
    TIMEOUT,
    LaunchOptions,
    ServerProcess,
    eventually,
    run,
    serving,
)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("e2e-lost-store")]

EXPECTED = (
    "the store does not work|the store works again|was deleted or moved|was replaced|store failed"
    "|could not be deleted"  # expired records, on a full disk
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


def detail(server: ServerProcess) -> str:
    """Return what the detailed health says of the store."""
    shown = server.health()
    is_ok = shown["readiness"]["checks"]["store"]["status"] == "ok"
    assert is_ok == (shown["status"] == "ok")
    return str(shown["readiness"]["checks"]["store"].get("detail", ""))


def check_trouble(server: ServerProcess, what: str) -> None:
    """Check that a server notices trouble without being asked for anything, and says what it is."""
    assert eventually(lambda: ready(server) == 503, 5) < 4  # a second, on a busy machine
    assert server.get("/health/ready").json()["reason"] == "the store does not work"
    assert what in detail(server)
    assert what in server.log
    assert server.get("/health/live").status_code == 200


def check_recovery(server: ServerProcess) -> None:
    """Check that a server works again by itself."""
    eventually(lambda: ready(server) == 200, 5)
    assert detail(server) == ""
    assert respond(server).status_code == 200
    assert "the store works again" in server.log


@pytest.mark.parametrize("content", [b"", b"\xff" * 20_000], ids=["truncated", "overwritten"])
def test_a_server_notices_that_its_database_is_overwritten(tmp_path: Path, content: bytes) -> None:
    with serving(LaunchOptions(tmp_path), expected=EXPECTED) as server:
        path = server.plan.data_dir / "hermes.db"
        assert respond(server).status_code == 200
        before = path.read_bytes()
        path.write_bytes(content)
        check_trouble(server, "was overwritten or truncated")
        assert respond(server).status_code == 503
        path.write_bytes(before)
        check_recovery(server)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk, or no test."""
    with ExitStack() as stack:
        try:
            yield stack.enter_context(small_disk(tmp_path / "disk", "6m"))
        except PermissionError:
            pytest.skip("nobody may mount here")


def test_a_server_notices_a_full_disk(disk: Path, tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(disk, target_is_directory=True)
    plan = LaunchOptions(tmp_path)
    with serving(plan, expected=EXPECTED) as server:
        assert respond(server).status_code == 200
        ballast = fill_disk(disk)
        check_trouble(server, "is full")
        ballast.unlink()
        check_recovery(server)


def test_a_server_notices_that_it_cannot_write_even_if_it_has_nothing_to_write(
    tmp_path: Path,
) -> None:
    with serving(LaunchOptions(tmp_path), expected=EXPECTED) as server:
        for _ in range(3):
            assert respond(server).status_code == 200
        size = (server.plan.data_dir / "hermes.db-wal").stat().st_size
        assert size > 10 * server.log_file.stat().st_size  # which the limit concerns, too
        before = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, before[1]))
        assert eventually(lambda: ready(server) == 503, 25) < 15
        check_trouble(server, "disk")
        assert respond(server).status_code == 503
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, before)
        check_recovery(server)
