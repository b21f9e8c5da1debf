"""Signals and clocks: killed, asked to stop, stopped and let go on, and moved in time; under load."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.crash.rounds import run_rounds
from tests.robustness.real_footprint import at_rest, faults_at_rest, faults_of_all
from tests.robustness.real_servers import long_session, server_in
from tests.robustness.real_turns import start_turns
from tests.robustness.report import CaseCounter
from tests.robustness.test_real_disconnects import some_seed
from tests.robustness.violations import VIOLATIONS, Violation
from tests.support.server_process import ServerProcess, eventually
from tests.support.socket_client import chat_bytes, open_connection
from tests.support.stored_records import unfinished

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

HUGE = "tokens=10000000 size=200"
LONG = "tokens=1000 rate=100 tools=3"
DAY = 86_400
KILLS, TERMS, STOPS = 200, 60, 10


@pytest.mark.xdist_group("robustness-kills")
@long_session
def test_kills(tmp_path: Path, cases: CaseCounter) -> None:
    report = run_rounds(tmp_path, KILLS, int(some_seed()), slack=1.0)
    VIOLATIONS.record(Violation.LOST, len(report.findings.violations), report.findings.responses)
    assert report.findings.violations == [], report.summary
    found = report.findings
    cases.add("process faults", {"kill -9": report.kills})
    cases.add(
        "after kills",
        {"responses checked": found.responses, "runs ended by the next process": found.cut},
    )


@pytest.mark.xdist_group("robustness-terms")
def test_asked_to_stop_at_random_moments(tmp_path: Path, full: bool, cases: CaseCounter) -> None:
    seed = some_seed()
    for number in range(TERMS if full else 1):
        dice = random.Random(f"{seed}-{number}")
        _term_round(tmp_path / str(number), dice, f"seed {seed}, round {number}")
    cases.add(
        "process faults",
        {"SIGTERM with 8 streams, a stalled and an idle client": TERMS if full else 1},
    )


def _term_round(folder: Path, dice: random.Random, about: str) -> None:
    """Every stream tells its end, nothing is in progress, the exit code is 0.

    Who stalls holds nothing up.
    """
    settings = {"drain_seconds": dice.choice((0, 0.3, 30)), "interrupt_grace_seconds": 1}
    with server_in(folder, "synthetic", "asked again|a stream was cut off", **settings) as server:
        with (
            open_connection(server, receive_buffer=4096) as stalled,
            open_connection(server),
            start_turns(server, [LONG] * 8) as crowd,
        ):
            # What is long enough fills all buffers: then the server waits for it, as long as it
            # must.
            stalled.send(chat_bytes(server, "stalled", dice.choice((HUGE, LONG, LONG))))
            stalled.until(b"t000001")
            eventually(crowd.have_begun)
            time.sleep(dice.uniform(0, 0.5))  # the moment is what is tested
            begun = server.signal()
            time.sleep(dice.uniform(0, 0.3))
            server.signal(dice.choice((signal.SIGTERM, signal.SIGINT)))
            assert server.wait() == 0, about
            assert time.monotonic() - begun < 20, about  # far less than the drain of some
            received = crowd.wait()
        assert [each.ends for each in received if len(each.ends) != 1] == [], about
        assert faults_of_all(server, received) == [], about
        assert unfinished(server) == 0, about


@pytest.mark.xdist_group("robustness-stops")
def test_stopped_and_let_go_on(tmp_path: Path, full: bool, cases: CaseCounter) -> None:
    """For longer than every deadline.

    It is not the clients who were late. (On a busy machine they are, by half a second.)
    """
    deadline = 2.0
    settings: dict[str, Any] = {
        "stall_seconds": deadline,
        "write_seconds": deadline,
        "keepalive_seconds": 0.2,
        "interrupt_grace_seconds": deadline,
    }
    with server_in(tmp_path, "synthetic", **settings) as server:
        before = at_rest(server)
        for _ in range(STOPS if full else 1):
            with start_turns(
                server, ["tokens=150 rate=50 tools=2", "tokens=60000 tools=2"] * 4
            ) as crowd:
                eventually(crowd.have_begun)
                server.signal(signal.SIGSTOP)
                time.sleep(deadline + 0.5)
                server.signal(signal.SIGCONT)
                received = crowd.wait()
            assert [
                each.ends for each in received if "completed" not in next(iter(each.ends), ())
            ] == []
            assert faults_of_all(server, received) == []
        assert faults_at_rest(server, before, idle_threads=30) == []
    cases.add("process faults", {"SIGSTOP for longer than every deadline": STOPS if full else 1})


@pytest.mark.xdist_group("robustness-stops")
def test_a_clock_that_jumps(tmp_path: Path, cases: CaseCounter) -> None:
    shift = tmp_path / "shift"
    shift.write_text("0")
    with server_in(
        tmp_path, "synthetic", fault_clock=shift, approval_seconds=5, run_seconds=30
    ) as server:
        before = at_rest(server)
        with start_turns(server, ["tokens=100 rate=50 tools=2"] * 8) as crowd:
            for seconds in (DAY, -DAY, 0):
                eventually(crowd.have_begun)
                _jump(server, shift, seconds)
            received = crowd.wait()
        assert [
            each.ends for each in received if "completed" not in next(iter(each.ends), ())
        ] == []
        assert faults_of_all(server, received) == []
        assert faults_at_rest(server, before, idle_threads=30) == []
    cases.add("process faults", {"jumps of the wall clock": 3})


def _jump(server: ServerProcess, shift: Path, seconds: int) -> None:
    draft = shift.with_suffix(".draft")
    draft.write_text(str(seconds))
    draft.rename(shift)
    now = server.health()["updated_at"] - time.time()
    assert abs(now - seconds) < 60
