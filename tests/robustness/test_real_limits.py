"""Too few descriptors, too few threads, a tool's child that is killed.

What can go on goes on, and all of it comes back.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.e2e.conftest import AGENTS
from tests.robustness.real_footprint import at_rest, faults_at_rest, faults_of_all
from tests.robustness.real_servers import (
    being_there,
    chat,
    limit_with_room,
    limited,
    server_in,
    unless_short,
)
from tests.robustness.report import CaseCounter
from tests.support.server_process import ServerProcess, eventually, processes
from tests.support.socket_client import open_chat_stream

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("robustness-limits"),
    pytest.mark.timeout(600),
]

TURN = "tokens=5 tools=1"
TURNS = 30


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with server_in(tmp_path, AGENTS, expected="accept|EMFILE|Too many open files") as running:
        for _ in range(3):
            chat(running, TURN)
        yield running


def test_the_limit_of_descriptors(server: ServerProcess, cases: CaseCounter) -> None:
    before = at_rest(server)
    with open_chat_stream(server, "victim", "tokens=60 rate=30") as victim, ExitStack() as idle:
        victim.until("t000001")
        with limited(server, resource.RLIMIT_NOFILE, limit_with_room(server, 10)):
            for _ in range(50):
                idle.enter_context(socket.create_connection(("127.0.0.1", server.port), 5))
            victim.until("t000030")
        assert victim.last_chunk()["choices"][0]["finish_reason"] == "stop"
    assert chat(server, TURN).received.ends == (frozenset({"completed", "cancelled"}),)
    assert faults_at_rest(server, before, idle_threads=20) == []
    cases.add("process faults", {"connections beyond the limit of descriptors": 50})


def test_a_tool_without_descriptors(server: ServerProcess, cases: CaseCounter) -> None:
    before = at_rest(server)
    # Enough for the connection, not for the pipes of a child.
    with limited(server, resource.RLIMIT_NOFILE, limit_with_room(server, 2)):
        reply = chat(server, "/terminal echo hi")
    assert len(reply.received.ends) == 1
    assert chat(server, "/terminal echo hi").received.ends == (
        frozenset({"completed", "cancelled"}),
    )
    assert faults_of_all(server, [reply.received]) == []
    assert faults_at_rest(server, before, idle_threads=20) == []
    cases.add("process faults", {"tools without descriptors": 1})


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_limit_of_threads(tmp_path: Path, mode: str, full: bool, cases: CaseCounter) -> None:
    """Agents that need a thread fail, each as a run of its own.

    Nothing else does, and all of it comes back.
    """
    unless_short(full or mode == "sync")
    expected = "thread|store failed|logs could not|saved late|unhandled|failed"
    switch = tmp_path / "no-threads"
    with server_in(tmp_path, "synthetic", expected, fault_threads=switch) as server:
        turn = f"{TURN} mode={mode}"
        chat(server, turn)
        before = at_rest(server)
        with being_there(switch), ThreadPoolExecutor(10) as pool:
            replies = list(pool.map(lambda _: chat(server, turn), range(TURNS)))
        assert {reply.status for reply in replies} <= {200, 503}
        assert chat(server, turn).received.ends == (frozenset({"completed", "cancelled"}),)
        received = [reply.received for reply in replies if reply.status == 200]
        assert all(len(each.ends) == 1 for each in received)
        assert faults_at_rest(server, before, idle_threads=20) == []
        assert faults_of_all(server, received, store_failed=True) == []
        cases.add("process faults", {f"turns without threads, {mode}": TURNS})


@pytest.mark.parametrize(
    "script", ["kill -9 $$", "ulimit -v 100000; exec python3 -c 'bytearray(10**9)'"]
)
def test_a_tool_that_runs_out_of_memory(
    server: ServerProcess, script: str, cases: CaseCounter
) -> None:
    reply = chat(server, f"/terminal {script}", approve=True)
    assert reply.received.ends == (frozenset({"completed", "cancelled"}),)
    assert faults_of_all(server, [reply.received]) == []
    cases.add("process faults", {"children killed": 1})


def test_a_child_that_is_killed_from_outside(server: ServerProcess, cases: CaseCounter) -> None:
    before, number = at_rest(server), f"60.{uuid.uuid4().int % 10**12}"
    with open_chat_stream(server, "killed", f"/terminal echo begun; sleep {number}") as stream:
        stream.until('"running"')
        eventually(lambda: processes(f"sleep\0{number}") != [])
        for pid in processes(number):
            with suppress(ProcessLookupError):  # the sandbox ends with what it runs
                os.kill(pid, signal.SIGKILL)
        assert stream.last_chunk()["choices"][0]["finish_reason"] == "stop"
    assert faults_at_rest(server, before, idle_threads=20) == []
    cases.add("process faults", {"children killed": 1})
