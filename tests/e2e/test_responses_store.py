"""A store in trouble: a clear error, the server goes on, and nothing that was acknowledged is lost."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import AGENTS, Launch
from tests.e2e.responses import body_bytes, id_in, post, shown
from tests.support.server_process import LaunchOptions, ServerProcess, eventually, run, serving
from tests.support.socket_client import open_connection

pytestmark = [pytest.mark.xdist_group("e2e-responses-store"), pytest.mark.slow]

TROUBLE = (
    "the store failed|logs could not be written|could not be stored|saved late"
    "|store does not work|store works again"
)
MEGABYTE = 1_000_000


def completed(server: ServerProcess, text: str = "tokens=5", **more: Any) -> dict[str, Any]:
    """A turn that works."""
    answer = post(server, text, **more)
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "completed"
    return dict(answer.json())


def check_refused(answer: httpx2.Response) -> None:
    assert answer.status_code == 503, answer.text
    assert answer.json()["error"]["code"] == "session_db_unavailable"
    assert answer.headers["retry-after"]


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 8 MB as the data folder."""
    data = folder / "data"
    data.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", str(data)]
    if (
        os.geteuid() != 0
        or subprocess.run(command, capture_output=True, check=False).returncode != 0
    ):
        reason = "a small disk needs the right to mount a tmpfs"
        print(reason)  # noqa: T201
        pytest.skip(reason)
    try:
        yield data
    finally:
        subprocess.run(["umount", "--lazy", str(data)], check=True)


def fill(disk: Path) -> Path:
    """Leave no room on a disk; the file that takes it."""
    filler = disk / "filler"
    room = os.statvfs(disk)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize)
    assert os.statvfs(disk).f_bavail == 0
    return filler


def test_a_full_disk(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path) as disk,
        serving(LaunchOptions(tmp_path, ("--agent", AGENTS)), expected=TROUBLE) as server,
    ):
        before = completed(server)
        filler = fill(disk)
        check_refused(post(server, "tokens=1" + " " * MEGABYTE))
        assert shown(server, before["id"]) == before
        filler.unlink()
        completed(server, "tokens=1" + " " * MEGABYTE)
        assert shown(server, before["id"]) == before


def test_a_disk_that_fills_up_during_a_run(tmp_path: Path) -> None:
    """The client is told that its answer could not be stored.

    When there is room again, the record says the same.
    """
    with (
        small_disk(tmp_path) as disk,
        serving(LaunchOptions(tmp_path, ("--agent", AGENTS)), expected=TROUBLE) as server,
        open_connection(server) as talk,
    ):
        talk.send(body_bytes(server, "tokens=200 rate=200 size=10000"))
        response_id = id_in(talk)
        talk.until(b"t000010")
        filler = fill(disk)
        talk.until(b"data: [DONE]\n\n")
        assert b"event: response.failed" in talk.seen
        assert b"The answer could not be stored." in talk.seen
        filler.unlink()
        eventually(lambda: shown(server, response_id)["status"] == "failed", 5)
        record = shown(server, response_id)
        assert len(record["output"][0]["content"][0]["text"]) == 2_000_000
        assert completed(server, previous_response_id=response_id)


@contextmanager
def locked(server: ServerProcess) -> Iterator[None]:
    """Another program holds the database."""
    with closing(
        sqlite3.connect(server.plan.data_dir / "hermes.db", isolation_level=None)
    ) as database:
        database.execute("BEGIN EXCLUSIVE")
        yield
        database.execute("ROLLBACK")


def test_a_locked_database(launch: Launch) -> None:
    server = launch("--agent", AGENTS, expected=TROUBLE)
    before = completed(server)
    with locked(server):
        check_refused(post(server, "tokens=1"))
        assert shown(server, before["id"]) == before
        assert server.get("/health").status_code == 200
    assert completed(server, previous_response_id=before["id"])


def test_a_short_lock_delays_the_end_only(launch: Launch) -> None:
    """Text goes on; the end waits until it can be saved."""
    server = launch("--agent", AGENTS)
    with open_connection(server) as talk:
        talk.send(body_bytes(server, "tokens=50 rate=100"))
        response_id = id_in(talk)
        talk.until(b"t000005")
        with locked(server):
            talk.until(b"t000050")
            assert shown(server, response_id)["status"] == "in_progress"
            assert b"[DONE]" not in talk.seen
        talk.until(b"data: [DONE]\n\n")
    assert b"event: response.completed" in talk.seen
    record = shown(server, response_id)
    assert (record["status"], record["output"][0]["content"][0]["text"].count("t0")) == (
        "completed",
        50,
    )


def refusal(plan: LaunchOptions) -> str:
    """The one line that a refused start leaves."""
    done = run(plan)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: store: ")
    return line


def test_a_read_only_disk(tmp_path: Path) -> None:
    plan = LaunchOptions(tmp_path, ("--agent", AGENTS))
    with small_disk(tmp_path) as disk:
        with serving(plan) as server:
            completed(server)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert "Read-only file system" in refusal(plan)


def not_sqlite(path: Path) -> None:
    path.write_bytes(b"this is no database " * 1000)


def half_overwritten(path: Path) -> None:
    """The header is whole, the pages are not."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(4096)
        file.write(os.urandom(size - 4096))


def test_a_damaged_database(tmp_path: Path) -> None:
    plan = LaunchOptions(tmp_path, ("--agent", AGENTS))
    with serving(plan) as server:
        completed(server)
    for damage in (half_overwritten, not_sqlite):
        damage(plan.data_dir / "hermes.db")
        assert "damaged" in refusal(plan) or "not an SQLite database" in refusal(plan)
