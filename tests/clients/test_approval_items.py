"""Approvals in the standard form: the server is a hosted MCP server to the client, and asks in items.

``nox -s clients`` runs these with the others; the normal suite skips them.
"""

from __future__ import annotations

import pytest

from tests.clients.catalogue import CLIENTS, RESPONSES
from tests.clients.test_clients import Client, RunCounter
from tests.support.server_process import ServerProcess

ASK = "/ask echo 6*7"  # the demo agent asks before it runs the command
# Those that implement hosted MCP servers.
KNOWING = [
    spec for spec in CLIENTS if spec.api == RESPONSES and spec.driver in {"openai_agents", "ai_sdk"}
]

pytestmark = [
    pytest.mark.parametrize(
        "client", KNOWING, ids=[spec.id for spec in KNOWING], indirect=True, scope="module"
    ),
    pytest.mark.slow,
]


@pytest.fixture
def runs(server: ServerProcess) -> RunCounter:
    return RunCounter(server)


def test_an_approved_call_is_run(client: Client, runs: RunCounter) -> None:
    question, answer, later = client.perform("approve", ASK, "hello again").texts
    assert "terminal" in question
    assert "echo 6*7" in question
    assert answer.rstrip().endswith("`/ask echo 6*7`: 6*7")
    assert "You said: “hello again”" in later
    assert runs.count == 3, "one run to ask, one with the answer, one for the next turn"


def test_a_refused_call_is_not_run(client: Client, runs: RunCounter) -> None:
    _, answer, later = client.perform("refuse", ASK, "hello again").texts
    assert answer.rstrip().endswith("not approved (client)")
    assert "You said: “hello again”" in later
    assert runs.count == 3, "one run to ask, one with the answer, one for the next turn"
