"""Real clients in front of a real server whose agent runs tools of its own.

``nox -s clients`` installs them, at the versions that are named there; the normal suite skips these
tests. Each turn must be one run: a client that takes a tool of the server for its own, or that
retries a failed turn, makes more.
"""

from __future__ import annotations

import re
from typing import Protocol

import pytest

from tests.clients.catalogue import CLIENTS
from tests.clients.driver_process import ClientFailed, ClientReply
from tests.support.server_process import ServerProcess, eventually

TOOL = "/terminal echo 6*7"  # the demo agent runs it
RESULT = "`/terminal echo 6*7`: 6*7"
CALL = '/call multiply {"a": 6, "b": 7}'  # the demo agent asks the client to run it
FAILURE = "the tool shed burned down"
SECONDS = 5.0  # for an agent to be interrupted

pytestmark = [
    pytest.mark.parametrize(
        "client", CLIENTS, ids=[spec.id for spec in CLIENTS], indirect=True, scope="module"
    ),
    pytest.mark.slow,
]


class Client(Protocol):
    """A client, however it is driven."""

    def perform(self, action: str, *texts: str) -> ClientReply: ...


class RunCounter:
    """Counts the runs of a server from now on."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._before = self._ended()

    @property
    def count(self) -> int:
        """How many runs have ended since. Waits until none is live."""
        return self._ended() - self._before

    def _ended(self) -> int:
        eventually(lambda: self._server.is_idle)
        text = self._server.get("/metrics").text
        return sum(map(int, re.findall(r"^hermes_trio_runs_total\{.*\} (\d+)", text, re.MULTILINE)))


@pytest.fixture
def runs(server: ServerProcess) -> RunCounter:
    return RunCounter(server)


def test_answer(client: Client, runs: RunCounter) -> None:
    assert "You said: “good morning”" in client.perform("answer", "good morning").text
    assert runs.count == 1, "one run"


def test_stream(client: Client, runs: RunCounter) -> None:
    reply = client.perform("stream", "good morning")
    assert "You said: “good morning”" in reply.text
    assert reply.is_whole or len(reply.texts) > 10, "it came in pieces"
    assert runs.count == 1, "one run"


def test_server_tool(client: Client, runs: RunCounter) -> None:
    assert client.perform("answer", TOOL).text.rstrip().endswith(RESULT)
    assert client.perform("stream", TOOL).text.rstrip().endswith(RESULT)
    assert runs.count == 2, "each turn is one run"


def test_second_turn(client: Client, runs: RunCounter) -> None:
    first, second = client.perform("converse", TOOL, "hello again").texts
    assert first.rstrip().endswith(RESULT)
    assert "You said: “hello again”" in second
    assert "demo agent" not in second, "it introduces itself in the first turn only"
    assert runs.count == 2, "each turn is one run"


def test_client_tool(client: Client, runs: RunCounter) -> None:
    reply = client.perform("use_tool", CALL)
    assert reply.calls == ((6, 7),), "the client ran its tool, once"
    assert "42" in reply.text
    assert runs.count == 2, "one run to call it, one with the result"


def test_failure(client: Client, runs: RunCounter) -> None:
    with pytest.raises(ClientFailed, match=FAILURE):
        client.perform("answer", f"{TOOL}\n/fail {FAILURE}")
    assert runs.count == 1, "a failed turn is not repeated"


def test_streamed_failure(client: Client, runs: RunCounter) -> None:
    with pytest.raises(ClientFailed, match=FAILURE):
        client.perform("stream", f"{TOOL}\n/fail {FAILURE}")
    assert runs.count == 1, "a failed turn is not repeated"


def test_disconnect(client: Client, runs: RunCounter, server: ServerProcess) -> None:
    assert client.perform("leave", "/long 100000").texts, "something arrived before"
    eventually(lambda: server.is_idle, SECONDS)
    assert runs.count == 1, "one run"
