"""Signals at inconvenient moments.

To the whole process group, during start-up, and during shutdown.
"""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from pathlib import Path

import pytest

from tests.robustness.lingering import ENDING, HOLD_END, HOLD_START, STARTING
from tests.robustness.real_footprint import faults_of_all
from tests.robustness.real_servers import being_there
from tests.robustness.real_turns import start_turns
from tests.robustness.report import CaseCounter
from tests.robustness.test_real_disconnects import some_seed
from tests.support.server_process import (
    MODULE,
    LaunchOptions,
    ServerProcess,
    begin,
    eventually,
    kill,
    processes,
    serving,
    start,
)
from tests.support.stored_records import unfinished

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("robustness-signals"),
    pytest.mark.timeout(600),
]

LINGERING = ("--agent", "tests.robustness.lingering:provider")
LONG = "tokens=1000 rate=100 tools=3"
STARTS = 40
# Before the program is even loaded, a signal does what signals do.
UNLOADED = {signal.SIGTERM: {0, -signal.SIGTERM}, signal.SIGINT: {0, 1, 130, -signal.SIGINT}}
EXPECTED = "asked again|recovered a run of a dead process"
by_signal = pytest.mark.parametrize("number", UNLOADED, ids=lambda number: number.name)


@by_signal
def test_in_the_midst_of_the_start(
    tmp_path: Path, number: signal.Signals, cases: CaseCounter
) -> None:
    """A start that waits for something is called off, and leaves nothing that the next one would mind."""
    plan = LaunchOptions(tmp_path, LINGERING)
    with being_there(tmp_path / HOLD_START):
        server = begin(plan)
        try:
            eventually((tmp_path / STARTING).exists)
            server.signal(number)
            assert server.wait(5) == 0
            assert server.complaints("") == []
            assert "stopping before the start" in server.log
        finally:
            kill(server)
    with serving(plan) as again:
        assert again.is_idle
    cases.add("process faults", {f"{number.name} during start-up": 1})


@by_signal
def test_in_the_midst_of_the_end(
    tmp_path: Path, number: signal.Signals, cases: CaseCounter
) -> None:
    """What was asked for goes on to its end, however often it is asked for again."""
    with serving(
        LaunchOptions(tmp_path, LINGERING, {"drain_seconds": 0}), expected=EXPECTED
    ) as server:
        with start_turns(server, [LONG] * 4) as crowd, being_there(tmp_path / HOLD_END):
            eventually(crowd.have_begun)
            server.signal()
            received = crowd.wait()
            eventually((tmp_path / ENDING).exists)
            for _ in range(3):
                server.signal(number)
                time.sleep(0.01)  # or they count as one
        assert server.wait(10) == 0
        assert [each.ends for each in received if len(each.ends) != 1] == []
        assert faults_of_all(server, received) == []
        assert unfinished(server) == 0
    cases.add("process faults", {f"{number.name} during shutdown": 3})


@by_signal
def test_to_the_whole_group(tmp_path: Path, number: signal.Signals, cases: CaseCounter) -> None:
    """As a service manager or a terminal sends it: the children of tools hear it too."""
    plan = LaunchOptions(tmp_path, settings={"drain_seconds": 0.2}, command=("setsid", *MODULE))
    with serving(plan, expected=EXPECTED) as server:
        nap = f"60.{uuid.uuid4().int % 10**12}"
        with start_turns(server, [f"/terminal sleep {nap}"] * 4) as crowd:
            eventually(lambda: len(processes(f"sleep\0{nap}")) == 4)
            os.killpg(server.pid, number)
            received = crowd.wait()
        assert server.wait(10) == 0
        assert processes(nap) == []
        assert [each.ends for each in received if len(each.ends) != 1] == []
        assert faults_of_all(server, received) == []
        assert unfinished(server) == 0
    cases.add("process faults", {f"{number.name} to the process group": 1})


def test_at_random_moments_of_the_start(tmp_path: Path, full: bool, cases: CaseCounter) -> None:
    """With runs to end that recovered a run of a dead process.

    They are ended by this start or by another, and once.
    """
    if not full:
        pytest.skip(
            "only in the full session"
        )  # chance needs many tries; the tests above choose their moments
    dice = random.Random(some_seed())
    plan = LaunchOptions(tmp_path, ("--agent", "synthetic"))
    seconds = _leave_runs_behind(plan)
    for _ in range(STARTS):
        number = dice.choice(list(UNLOADED))
        server = begin(plan)
        try:
            # The moment is what is tested. In its very first ones the interpreter itself may lose
            # an interrupt.
            time.sleep(dice.uniform(0.0 if number is signal.SIGTERM else 0.25, 1.2) * seconds)
            server.signal(number)
            assert server.wait(10) in UNLOADED[number], server.log
            assert server.complaints(f"{EXPECTED}|Traceback") == []  # of an interrupted import
        finally:
            kill(server)
    with serving(plan, expected=EXPECTED) as last:
        assert last.is_idle
        assert unfinished(last) == 0
    cases.add("process faults", {"signals at a random moment of start-up": STARTS})


def _leave_runs_behind(plan: LaunchOptions) -> float:
    """Returns how long a start takes."""
    begun = time.monotonic()
    server: ServerProcess = start(plan)
    seconds = time.monotonic() - begun
    try:
        with start_turns(server, [LONG] * 8) as crowd:
            eventually(crowd.have_begun)
            server.signal(signal.SIGKILL)
        assert unfinished(server) > 0
    finally:
        kill(server)
    return seconds
