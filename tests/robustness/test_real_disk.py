"""A disk that is full, cannot be written to, or whose database another program holds.

And a log that nobody takes.

Whoever can be told is told, what was acknowledged stays, nobody is stuck, and all goes on when the
trouble is over.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.robustness.real_footprint import at_rest, faults_at_rest, faults_of_all
from tests.robustness.real_servers import being_there, server_in, unless_short
from tests.robustness.real_turns import ConcurrentTurns, StreamedTurn, start_turns
from tests.robustness.report import CaseCounter
from tests.robustness.streams import Dialect, ReceivedStream
from tests.robustness.violations import VIOLATIONS
from tests.support.disks import small_disk
from tests.support.server_process import (
    TIMEOUT,
    LaunchOptions,
    ServerProcess,
    eventually,
    has_ended,
    kill,
    processes,
    run,
)
from tests.support.server_process import _read_until as read_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("robustness-disk"),
    pytest.mark.timeout(600),
]

TEXTS = ["tokens=40 rate=100 tools=1"] * 8
EXPECTED = "store failed|store does not work|store works again|gave up saving|a turn is lost|logs could not|saved late|cannot be saved|could not be|disk|database|locked|stored"
CHAT_FAILED = frozenset({"incomplete", "failed"})
COMPLETED = ({"completed"}, {"completed", "cancelled"})


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """A small one, or no test."""
    try:
        with small_disk(folder, "6m") as place:
            yield place
    except PermissionError:
        pytest.skip("nobody may mount here")


def fill(folder: Path) -> Path:
    """Leave no room."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    return ballast


def check_trouble(server: ServerProcess, crowd: ConcurrentTurns) -> list[ReceivedStream]:
    """Everybody is answered: a stream with its one end, or a refusal that says why."""
    received = crowd.wait()
    for turn in crowd.turns:
        assert turn.status in {200, 503}, turn
        assert turn.status == 503 or len(turn.received.ends) == 1, turn
        assert turn.status == 200 or b"session_db_unavailable" in turn.raw or turn.raw == b"", turn
    assert server.process.poll() is None
    return received


def check_recovery(server: ServerProcess, received: list[ReceivedStream]) -> None:
    """New turns are as they should be, and those that were under way have their records."""
    eventually(lambda: server.health()["status"] == "ok")
    for dialect in (Dialect.CHAT, Dialect.RESPONSES):
        turn = StreamedTurn(dialect, "tokens=3").run(server, http2=False)
        assert turn.received.ends[0] in COMPLETED, turn
        received = [*received, turn.received]
    with VIOLATIONS.closed():  # what could not be saved is saved late
        eventually(lambda: faults_of_all(server, received, store_failed=True) == [])
    assert faults_of_all(server, received, store_failed=True) == []


def in_trouble(server: ServerProcess, cases: CaseCounter, what: str) -> None:
    """New turns while there is trouble."""
    with start_turns(server, TEXTS) as crowd:
        check_trouble(server, crowd)
    assert {turn.status for turn in crowd.turns if turn.dialect is Dialect.RESPONSES} == {503}
    assert {each for turn in crowd.turns if turn.status == 200 for each in turn.received.ends} == {
        CHAT_FAILED
    }
    cases.add("store faults", {what: len(TEXTS)})


def test_a_full_disk(tmp_path: Path, cases: CaseCounter) -> None:
    with disk(tmp_path / "data") as place, server_in(tmp_path, "synthetic", EXPECTED) as server:
        before = at_rest(server)
        with start_turns(server, TEXTS) as crowd:
            eventually(crowd.have_begun)
            ballast = fill(place)
            received = check_trouble(server, crowd)
        in_trouble(server, cases, "turns on a full disk")
        ballast.unlink()
        check_recovery(server, received)
        assert faults_at_rest(server, before, idle_threads=40) == []


def test_a_disk_that_can_only_be_read(tmp_path: Path, cases: CaseCounter) -> None:
    switch = tmp_path / "read-only"
    with server_in(tmp_path, "synthetic", EXPECTED, fault_readonly=switch) as server:
        before = at_rest(server)
        with start_turns(server, TEXTS) as crowd:
            eventually(crowd.have_begun)
            with being_there(switch):
                received = check_trouble(server, crowd)
                in_trouble(server, cases, "turns on a read-only database")
        check_recovery(server, received)
        assert faults_at_rest(server, before, idle_threads=40) == []


def test_a_start_on_a_disk_that_can_only_be_read(tmp_path: Path, cases: CaseCounter) -> None:
    with disk(tmp_path / "data") as place:
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        done = run(
            LaunchOptions(tmp_path, ("--agent", "synthetic"), {"api_key": "a-key-for-this-test"})
        )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr, done.stderr
    assert "ead-only" in done.stderr or "cannot" in done.stderr, done.stderr
    cases.add("store faults", {"starts on a read-only disk": 1})


@pytest.mark.parametrize("seconds", [1.0, 7.0])
def test_a_database_that_another_program_holds(
    tmp_path: Path, seconds: float, full: bool, cases: CaseCounter
) -> None:
    """For less and for more than the store waits for it."""
    unless_short(full or seconds == 1)
    with server_in(tmp_path, "synthetic", EXPECTED) as server:
        before = at_rest(server)
        path = server.plan.data_dir / "hermes.db"
        with start_turns(server, TEXTS) as crowd, closing(sqlite3.connect(path)) as other:
            eventually(crowd.have_begun)
            other.execute("BEGIN EXCLUSIVE")
            time.sleep(seconds)
            other.rollback()
            received = check_trouble(server, crowd)
        check_recovery(server, received)
        if seconds < 5:  # nothing at all is lost then
            assert all(each.ends[0] in COMPLETED for each in received)
        assert faults_at_rest(server, before, idle_threads=40) == []
    cases.add("store faults", {"turns while the database is locked": len(TEXTS)})


@pytest.mark.parametrize("sink", ["full", "closed"])
def test_a_log_that_nobody_takes(tmp_path: Path, sink: str, full: bool, cases: CaseCounter) -> None:
    unless_short(full or sink == "full")
    plan = LaunchOptions(
        tmp_path, ("--agent", "synthetic", "--log-level", "debug"), {"drain_seconds": 0.2}
    )
    tmp_path.mkdir(exist_ok=True)
    with log_sink(sink) as stderr:
        server = ServerProcess(plan, f"sink-{sink}-{os.getpid()}", None, tmp_path / "log")  # type: ignore[arg-type]
        server.log_file.touch()
        server.process = plan.popen(server.mark, stdout=subprocess.PIPE, stderr=stderr)
    try:
        server.url = read_until(server, b"Try it:").partition(" at ")[2].split()[0]
        before = at_rest(server)
        with start_turns(server, TEXTS) as crowd:
            received = crowd.wait()
        assert all(each.ends[0] in COMPLETED for each in received)
        # A line for each of these: a key that is wrong, a connection that is cut, a failing turn.
        StreamedTurn(Dialect.CHAT, "nonsense=1").run(server, http2=False)
        assert faults_of_all(server, received) == []
        assert faults_at_rest(server, before, idle_threads=40) == []
        server.signal()
        assert has_ended(server.process, TIMEOUT)
        assert server.process.wait() == 0
    finally:
        kill(server)
    assert processes(server.mark) == []
    cases.add("store faults", {f"turns with the log output {sink}": len(TEXTS)})


@contextmanager
def log_sink(kind: str) -> Iterator[int]:
    """Something that takes no line."""
    if kind == "full":
        descriptor = os.open("/dev/full", os.O_WRONLY)
    else:
        other, descriptor = os.pipe()
        os.close(other)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
