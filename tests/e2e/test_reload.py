"""``hermes-trio serve --reload``: an agent is edited while it is served."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server_process import (
    TIMEOUT,
    LaunchOptions,
    ServerProcess,
    begin,
    eventually,
    kill,
    processes,
)

pytest.importorskip("watchfiles")
pytestmark = [pytest.mark.xdist_group("e2e-startup"), pytest.mark.slow]

AGENT = """
class Agent:
    def __init__(self, context):
        pass

    def run(self, turn, emitter):
        return {answer!r}
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with ``--reload`` and an agent in its working directory."""
    (tmp_path / "edited.py").write_text(AGENT.format(answer="before"))
    options = LaunchOptions(tmp_path, ("--reload", "--agent", "edited:Agent"), cwd=tmp_path)
    running = begin(options, bufsize=0)
    try:
        yield running
    finally:
        kill(running)


def printed_example(server: ServerProcess) -> str:
    """Wait until the server is ready, and return the command that it prints then."""
    assert server.process.stdout is not None
    seen, deadline = "", time.monotonic() + TIMEOUT
    while (found := re.search(r"curl -N .*\n", seen)) is None:
        left = max(0.0, deadline - time.monotonic())
        ready = select.select([server.process.stdout], [], [], left)[0]
        assert ready, f"no example in {seen!r}:\n{server.log}"
        seen += os.read(server.process.stdout.fileno(), 65536).decode()
    return found[0]


def answer_of(server: ServerProcess) -> str:
    """Run the example that the server prints once it is ready, and return its output."""
    command = ["sh", "-c", printed_example(server)]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout


def test_an_edited_agent_is_served(server: ServerProcess, tmp_path: Path) -> None:
    assert '"before"' in answer_of(server)
    (tmp_path / "edited.py").write_text("class Agent:\n")  # does not even compile
    eventually(lambda: "the server ended with code 2" in server.log)
    assert "cannot be imported: IndentationError" in server.log
    (tmp_path / "edited.py").write_text(AGENT.format(answer="after"))
    assert '"after"' in answer_of(server)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_both_processes(server: ServerProcess, number: int) -> None:
    printed_example(server)
    assert len(processes(server.mark)) == 2
    server.signal(number)
    assert server.wait() == 0
    assert processes(server.mark) == []
