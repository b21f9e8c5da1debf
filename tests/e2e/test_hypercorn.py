"""``hypercorn -k trio hermes_trio.asgi:app``.

The same server under Hypercorn's own command line.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from tests.e2e.conftest import AGENTS
from tests.support.fatal_packets import h2_bad_path, h2_connect
from tests.support.raw_http import UPGRADE
from tests.support.server_process import (
    TIMEOUT,
    LaunchOptions,
    ServerProcess,
    begin,
    eventually,
    kill,
    processes,
    run,
)
from tests.support.socket_client import RawConnection, chat_bytes, open_chat_stream, open_connection
from tests.support.stored_records import turns

pytestmark = pytest.mark.xdist_group("e2e-hypercorn")

COMMAND = (
    *(sys.executable, "-m", "hypercorn", "--worker-class", "trio", "--workers", "1"),
    *("--bind", "127.0.0.1:0", "hermes_trio.asgi:app"),
)
TOML = """
bind = ["127.0.0.1:0"]
workers = 1
graceful_timeout = 5
"""
_RUNNING = re.compile(r"Running on (http://\S+)")


SETTINGS = {"agent": AGENTS, "api_key": "a-key-for-hypercorn"}


def from_file(folder: Path, text: str) -> tuple[str, ...]:
    """The command that reads Hypercorn's configuration from a file."""
    path = folder / "hypercorn.toml"
    path.write_text(text)
    return (sys.executable, "-m", "hypercorn", "--config", str(path), "hermes_trio.asgi:app")


def started(plan: LaunchOptions, **options: Any) -> ServerProcess:
    """A server under Hypercorn's command line, once it listens."""
    server = begin(plan, **options)
    eventually(lambda: _RUNNING.search(server.log) is not None or server.process.poll() is not None)
    found = _RUNNING.search(server.log)
    assert found is not None, server.log
    server.url = found[1]
    return server


@pytest.fixture(scope="module")
def hypercorn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = started(
        LaunchOptions(tmp_path_factory.mktemp("hypercorn"), settings=SETTINGS, command=COMMAND)
    )
    try:
        yield server
        server.signal()
        server.wait(TIMEOUT)
    finally:
        kill(server)


def test_a_turn(hypercorn: ServerProcess) -> None:
    with open_chat_stream(hypercorn, "under-hypercorn", "/terminal echo hi\n/long 3") as stream:
        assert stream.last_chunk()["choices"][0]["finish_reason"] == "stop"
    assert turns(hypercorn, "under-hypercorn")[0].status == "completed"


@pytest.mark.parametrize("more", [b"x", b"\xff\x00garbage\r\n\r\n" * 10], ids=["byte", "garbage"])
def test_a_bad_upgrade_costs_one_connection(hypercorn: ServerProcess, more: bytes) -> None:
    with open_chat_stream(hypercorn, "victim", "tokens=20 rate=40") as victim:
        victim.until("t000001")
        with open_connection(hypercorn) as talk:
            talk.send(UPGRADE + more)
            assert b" 426 " in talk.to_end()
        assert victim.last_chunk()["choices"][0]["finish_reason"] == "stop"
    assert hypercorn.health()["status"] == "ok"


@pytest.mark.parametrize("trigger", [h2_bad_path, h2_connect])
async def test_a_bad_frame_costs_one_connection(hypercorn: ServerProcess, trigger: object) -> None:
    assert callable(trigger)
    with trio.fail_after(TIMEOUT):
        await trigger(hypercorn.port)
    assert hypercorn.health()["status"] == "ok"


def test_a_client_that_leaves(hypercorn: ServerProcess) -> None:
    with open_connection(hypercorn) as talk:
        talk.send(chat_bytes(hypercorn, "left", "/terminal sleep 60"))
        talk.until(b'"status": "running"')
    eventually(
        lambda: [turn.reason for turn in turns(hypercorn, "left")] == ["client_disconnected"], 1
    )


# The end of the process


def http1(server: ServerProcess, method: str, path: str, body: object = None) -> bytes:
    """A request as it stands on the wire."""
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.key}\r\n"
    return (
        f"{head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        + data
    )


def ask(server: ServerProcess, path: str, body: object) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {server.key}"}
    with httpx2.Client(trust_env=False, timeout=TIMEOUT) as client:
        answer = client.post(server.url + path, json=body, headers=headers)
    assert answer.is_success, answer.text
    return dict(answer.json())


def open_streams(server: ServerProcess, stack: ExitStack) -> dict[str, RawConnection]:
    """One silent stream of each API, with its first words read."""
    run_id = ask(server, "/v1/runs", {"input": "!silent", "session_id": "runs"})["run_id"]
    ask(server, "/api/sessions", {"id": "sessions"})
    requests = {
        "chat": chat_bytes(server, "chat", "!silent"),
        "responses": http1(server, "POST", "/v1/responses", {"input": "!silent", "stream": True}),
        "runs": http1(server, "GET", f"/v1/runs/{run_id}/events"),
        "sessions": http1(
            server, "POST", "/api/sessions/sessions/chat/stream", {"message": "!silent"}
        ),
    }
    talks = {name: stack.enter_context(open_connection(server)) for name in requests}
    for name, talk in talks.items():
        talk.send(requests[name])
        talk.until(b"ready")
    return talks


LAST_FRAMES = {
    "chat": (b'"code": "server_shutdown"', b"data: [DONE]"),
    "responses": (b"event: response.incomplete", b'"reason": "server_shutdown"', b"data: [DONE]"),
    "runs": (b'"reason": "server_shutdown"', b": stream closed"),
    "sessions": (b'"reason": "server_shutdown"', b"event: done"),
}


def outcomes(server: ServerProcess) -> list[tuple[str, str]]:
    """Status and reason of all runs in the store."""
    path = server.plan.data_dir / "hermes.db"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        return database.execute("SELECT status, reason FROM runs").fetchall()


@pytest.mark.slow
@pytest.mark.parametrize("to_group", [False, True], ids=["master", "group"])
@pytest.mark.parametrize("is_file", [False, True], ids=["flags", "file"])
def test_a_shutdown_ends_every_stream_in_order(
    tmp_path: Path, to_group: bool, is_file: bool
) -> None:
    """Whether the master gets the signal alone or the whole process group does, as by default from systemd."""
    command = from_file(tmp_path, f'{TOML}\nworker_class = "trio"') if is_file else COMMAND
    plan = LaunchOptions(tmp_path, settings={**SETTINGS, "drain_seconds": 0.2}, command=command)
    server = started(plan, start_new_session=True)
    try:
        with ExitStack() as stack:
            talks = open_streams(server, stack)
            if to_group:
                os.killpg(server.pid, signal.SIGTERM)
            else:
                server.signal()
            for name, talk in talks.items():
                seen = talk.to_end()
                assert seen.endswith(b"0\r\n\r\n"), (name, seen[-500:], server.log)
                for frame in LAST_FRAMES[name]:
                    assert frame in seen, (name, seen[-500:])
        assert server.wait() == 0, server.log
        eventually(lambda: processes(server.mark) == [], 10)
        assert outcomes(server) == [("incomplete", "server_shutdown")] * 4
        assert server.complaints("") == [], server.log
    finally:
        kill(server)


@pytest.mark.slow
def test_a_drain_lets_runs_end_within_the_graceful_timeout(tmp_path: Path) -> None:
    plan = LaunchOptions(tmp_path, settings={**SETTINGS, "drain_seconds": 20}, command=COMMAND)
    server = started(plan)
    try:
        with (
            open_chat_stream(server, "short", "tokens=20 rate=40") as short,
            open_chat_stream(server, "long", "!silent") as long,
        ):
            short.until("t000001")
            long.until("ready")
            server.signal()
            assert short.last_chunk()["choices"][0]["finish_reason"] == "stop"
            assert long.last_chunk()["hermes"]["error_code"] == "server_shutdown"
        assert server.wait() == 0
        assert sorted(outcomes(server)) == [("completed", ""), ("incomplete", "server_shutdown")]
    finally:
        kill(server)


def test_a_deprecated_setting_is_one_warning(tmp_path: Path) -> None:
    server = started(
        LaunchOptions(tmp_path, settings={**SETTINGS, "ahead_characters": 7}, command=COMMAND)
    )
    try:
        server.signal()
        assert server.wait() == 0
        assert server.log.count("HERMES_TRIO_AHEAD_CHARACTERS is deprecated") == 1
    finally:
        kill(server)


@pytest.mark.parametrize(
    ("command", "settings", "line"),
    [
        (
            tuple(part for part in COMMAND if part not in {"--worker-class", "trio"}),
            SETTINGS,
            "needs the Trio worker",
        ),
        (COMMAND, {}, "a key is needed"),
        (COMMAND, {"api_key": "password12345678"}, "too easy to guess"),
        (COMMAND, {**SETTINGS, "port": "many"}, "port"),
    ],
    ids=["worker class", "no key", "weak key", "setting"],
)
def test_what_keeps_it_from_starting_is_one_line(
    tmp_path: Path, command: tuple[str, ...], settings: dict[str, object], line: str
) -> None:
    done = run(LaunchOptions(tmp_path, settings=settings, command=command))
    assert done.stderr.startswith("hermes-trio: ")
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_file_without_the_worker_class_is_one_line(tmp_path: Path) -> None:
    command = from_file(tmp_path, TOML)
    done = run(LaunchOptions(tmp_path, settings=SETTINGS, command=command))
    (line,) = done.stderr.splitlines()
    assert line.startswith("hermes-trio: hypercorn needs the Trio worker")
    assert "worker_class" in line
