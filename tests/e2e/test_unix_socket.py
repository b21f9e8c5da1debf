"""A Unix socket beside the port: as a client of it, and behind what is left of a killed server."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import httpx2
import pytest

from tests.e2e.conftest import AGENTS
from tests.e2e.interruptible_agent import interrupt_file
from tests.support.server_process import LaunchOptions, eventually, kill, run, serving, start
from tests.support.socket_client import PATH, chat_body, chat_headers

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("e2e-unix")]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "server.sock"


def plan_of(tmp_path: Path, place: Path) -> LaunchOptions:
    return LaunchOptions(tmp_path, ("--agent", AGENTS, "--unix", str(place)), {"drain_seconds": 1})


def test_streams_and_disconnects(tmp_path: Path, place: Path) -> None:
    with serving(plan_of(tmp_path, place)) as server:
        assert stat.S_IMODE(place.stat().st_mode) == 0o660
        transport = httpx2.HTTPTransport(uds=str(place))
        headers = chat_headers(server, "local")
        with httpx2.Client(transport=transport, base_url="http://any.name", timeout=30) as client:
            assert client.get("/health").json()["status"] == "ok"
            body = chat_body("tokens=50")
            with client.stream("POST", PATH, content=body, headers=headers) as answer:
                lines = list(answer.iter_lines())
            assert "data: [DONE]" in lines
            with client.stream(
                "POST", PATH, content=chat_body("!silent"), headers=headers
            ) as answer:
                assert any('"ready"' in line for line in answer.iter_lines())
        eventually(interrupt_file(server.plan.data_dir / "workspace", "local").exists, 2)
        assert server.get("/health").status_code == 200  # the port is there, too
    assert not place.exists()


def test_the_socket_of_a_killed_server_is_replaced(tmp_path: Path, place: Path) -> None:
    kill(start(plan_of(tmp_path, place)))
    assert place.is_socket()
    with serving(plan_of(tmp_path, place)), socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(place))


def test_what_is_in_its_place_stays(tmp_path: Path, place: Path) -> None:
    place.write_text("mine")
    done = run(plan_of(tmp_path, place))
    assert done.returncode == 2
    assert f"cannot listen on {place}: a server or another file is there" in done.stderr
    assert place.read_text() == "mine"
