"""Runs that end because something takes too long.

The agent, the reader, or noticing a disconnect.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import AGENTS, Measured
from tests.e2e.interruptible_agent import interrupt_file
from tests.support.server_process import LaunchOptions, ServerProcess, eventually, serving
from tests.support.socket_client import chat_bytes, open_chat_stream, open_connection
from tests.support.stored_records import turns

pytestmark = pytest.mark.xdist_group("e2e-limits")

HUGE = "tokens=10000000 size=200"


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with short timeouts."""
    settings = {
        "run_seconds": 2,
        "stall_seconds": 0.5,
        "keepalive_seconds": 0.1,
        "drain_seconds": 1,
    }
    with serving(
        LaunchOptions(tmp_path_factory.mktemp("strict"), ("--agent", AGENTS), settings)
    ) as running:
        yield running


def test_a_run_over_its_time_limit_is_ended_and_reported(strict: ServerProcess) -> None:
    with open_chat_stream(strict, "slow", "/terminal echo begun; sleep 60") as stream:
        last = stream.last_chunk()
    assert last["choices"][0]["finish_reason"] == "error"
    assert last["hermes"]["reason"] == "timeout"
    (turn,) = turns(strict, "slow")
    assert (turn.status, turn.reason) == ("incomplete", "timeout")
    assert turn.roles == ["user", "assistant", "tool"]
    assert strict.is_idle


def test_a_client_that_stops_reading_is_disconnected(
    strict: ServerProcess, measured: Measured
) -> None:
    with open_connection(strict, receive_buffer=4096) as talk:
        talk.send(chat_bytes(strict, "stalled", HUGE))
        talk.until(b"t000001")
        taken = eventually(lambda: bool(turns(strict, "stalled")) and strict.is_idle, 3)
    measured("seconds_until_given_up", round(taken, 3))
    (turn,) = turns(strict, "stalled")
    assert (turn.status, turn.reason) == ("incomplete", "stalled_reader")
    assert turn.said_by("assistant").startswith("t000001")


def test_a_pipelining_client_that_leaves_is_noticed_at_a_keepalive(
    strict: ServerProcess,
) -> None:
    """Nothing is read from it any more before its answer is complete, so only a write can tell that it left."""
    with open_connection(strict) as talk:
        more = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        talk.send(chat_bytes(strict, "pipelined", "!silent") + more)
        talk.until(b'"content": "ready"')
        left = talk.leave()
    file = interrupt_file(strict.plan.data_dir / "workspace", "pipelined")
    eventually(file.exists, 2)
    at, reason = file.read_text().split()
    assert reason == "client_disconnected"
    assert float(at) - left < 1
