"""SIGTERM and SIGINT: runs end properly and in time, whatever delays them."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest

from tests.e2e.conftest import AGENTS, Launch, Measured
from tests.support.server_process import ServerProcess, eventually
from tests.support.socket_client import chat_bytes, chat_headers, open_chat_stream, open_connection
from tests.support.stored_records import StoredTurn, turns

pytestmark = pytest.mark.slow

HUGE = "tokens=10000000 size=200"
BODY = {"messages": [{"role": "user", "content": "hello"}]}


def only_turn(server: ServerProcess, session: str) -> StoredTurn:
    (turn,) = turns(server, session)
    return turn


@contextmanager
def exit_within(server: ServerProcess, seconds: float, measured: Measured) -> Iterator[None]:
    """From the signal, which the block sends, to the end of the process."""
    begun = time.monotonic()
    yield
    assert server.wait() == 0
    taken = time.monotonic() - begun
    measured("seconds_until_exit", round(taken, 3))
    assert taken < seconds


@pytest.mark.xdist_group("e2e-shutdown-1")
def test_a_shutdown_ends_the_stream_and_stores_the_turn(launch: Launch, measured: Measured) -> None:
    server = launch(drain_seconds=0.2)
    with open_chat_stream(server, "cut", "/terminal echo begun; sleep 60") as stream:
        stream.until('"running"')
        with exit_within(server, 2.5, measured):
            server.signal()
            *_, failure, last, done = stream.rest()
    assert json.loads(failure)["error"]["code"] == "server_shutdown"
    assert json.loads(last)["choices"][0]["finish_reason"] == "error"
    assert done == "[DONE]"
    turn = only_turn(server, "cut")
    assert (turn.status, turn.reason) == ("incomplete", "server_shutdown")
    assert turn.messages[-1]["content"].endswith("[cancelled before it ended]")


@pytest.mark.xdist_group("e2e-shutdown-1")
def test_a_drain_lets_runs_end_and_takes_no_new_ones(launch: Launch) -> None:
    server = launch("--agent", AGENTS, drain_seconds=20)
    headers = chat_headers(server, "late")
    with (
        open_chat_stream(server, "drained", "tokens=30 rate=20") as stream,
        httpx2.Client(
            base_url=server.url, verify=False, trust_env=False, headers=headers
        ) as client,
    ):
        stream.until("t000001")
        assert client.get("/health/ready").status_code == 200
        server.signal(signal.SIGINT)
        eventually(lambda: client.get("/health/ready").status_code == 503, 2)
        refused = client.post("/v1/chat/completions", json=BODY)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "gateway_draining")
        assert refused.headers["Retry-After"]
        assert 0 < server.health()["drain_remaining_seconds"] < 20
        assert stream.last_chunk()["choices"][0]["finish_reason"] == "stop"
    assert server.wait() == 0
    assert only_turn(server, "drained").status == "completed"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), 5)


@pytest.mark.xdist_group("e2e-shutdown-1")
def test_the_second_signal_ends_a_drain(launch: Launch, measured: Measured) -> None:
    server = launch("--agent", AGENTS, drain_seconds=60, expected="asked again")
    with open_chat_stream(server, "hurried", "!silent") as stream:
        stream.until("ready")
        server.signal()
        eventually(lambda: server.health()["gateway_state"] == "draining", 2)
        with exit_within(server, 2, measured):
            server.signal()
            assert stream.last_chunk()["hermes"]["error_code"] == "server_shutdown"
    assert only_turn(server, "hurried").reason == "server_shutdown"


@pytest.mark.xdist_group("e2e-shutdown-2")
def test_idle_connections_do_not_delay_the_shutdown(launch: Launch, measured: Measured) -> None:
    server = launch()
    with open_connection(server) as used, open_connection(server):
        used.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        used.until(b'"ok"')
        with exit_within(server, 1.5, measured):
            server.signal()
        assert used.sock.recv(1) == b""


@pytest.mark.xdist_group("e2e-shutdown-2")
def test_who_watches_the_log_does_not_delay_the_shutdown(
    launch: Launch, measured: Measured
) -> None:
    server = launch()
    with httpx2.stream(
        "GET",
        f"{server.url}/api/logs",
        headers={"Authorization": f"Bearer {server.key}"},
        trust_env=False,
        timeout=30,
    ) as answer:
        received = answer.iter_text()
        text = next(received)
        with exit_within(server, 1.5, measured):
            server.signal()
            text += "".join(received)  # to a proper end
    assert "stopping" in text
    assert server.key not in text


@pytest.mark.xdist_group("e2e-shutdown-2")
def test_a_stalled_reader_does_not_delay_the_shutdown(launch: Launch, measured: Measured) -> None:
    server = launch("--agent", AGENTS, drain_seconds=0.2, interrupt_grace_seconds=0.5)
    with open_connection(server, receive_buffer=4096) as talk:
        talk.send(chat_bytes(server, "stalled", HUGE))
        talk.until(b"t000001")
        with exit_within(server, 6, measured):
            server.signal()
    assert only_turn(server, "stalled").status == "incomplete"


@pytest.mark.xdist_group("e2e-shutdown-2")
def test_an_agent_that_ignores_its_interrupt_does_not_delay_the_shutdown(
    launch: Launch, measured: Measured
) -> None:
    server = launch(
        "--agent",
        AGENTS,
        drain_seconds=0,
        interrupt_grace_seconds=0.3,
        expected="did not stop and was abandoned",
    )
    with open_chat_stream(server, "deaf", "!deaf 60") as stream:
        stream.until("ready")
        with exit_within(server, 3, measured):
            server.signal()
            assert stream.last_chunk()["hermes"]["error_code"] == "server_shutdown"
    assert only_turn(server, "deaf").said_by("assistant") == "ready"


@pytest.mark.xdist_group("e2e-shutdown-2")
def test_a_pipelined_request_does_not_delay_the_shutdown(
    launch: Launch, measured: Measured
) -> None:
    """With the usual keep-alives: not one of them is needed to see the client leave."""
    server = launch("--agent", AGENTS)
    with open_connection(server) as talk:
        talk.send(
            chat_bytes(server, "left", "!silent")
            + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        talk.until(b"ready")
    eventually(lambda: server.is_idle, 2)
    with exit_within(server, 1.5, measured):
        server.signal()
