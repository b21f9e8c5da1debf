"""``hermes-trio status`` against real servers."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hermes_trio import __version__
from tests.support.server_process import TIMEOUT, LaunchOptions, ServerProcess, run, serving

pytestmark = pytest.mark.xdist_group("e2e-status")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    plan = LaunchOptions(tmp_path_factory.mktemp("status"), ("--port", "0", "--agent", "demo"))
    with serving(plan, expected="refused a key") as running:
        yield running


def status(
    server: ServerProcess, *arguments: str, **settings: object
) -> subprocess.CompletedProcess[str]:
    """The command, with the data folder of a server."""
    command = (sys.executable, "-m", "hermes_trio", "status", *arguments)
    return run(LaunchOptions(server.plan.folder, command=command, settings=settings))


def facts(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The facts that were printed."""
    assert done.stderr == ""
    return {line[:12].strip(): line[12:] for line in done.stdout.splitlines()}


def test_the_server_on_this_machine(server: ServerProcess) -> None:
    done = status(server, port=server.port)
    assert done.returncode == 0, done.stderr
    shown = facts(done)
    assert shown["state"] == "up"
    assert shown["version"] == __version__
    assert shown["pid"] == str(server.pid)
    assert shown["agents"] == "hermes-agent"
    assert shown["store"] == "sqlite, ok"
    assert shown["uptime"].endswith(" s")
    assert "reason" not in shown


def test_as_json(server: ServerProcess) -> None:
    report = json.loads(status(server, "--json", port=server.port).stdout)
    assert report["object"] == "hermes.status"
    assert report["gateway_pid"] == report["server"]["pid"] == server.pid


def test_a_gateway_by_its_address(server: ServerProcess) -> None:
    """This machine's key is sent to it, because it is on this machine."""
    for address in (server.url, f"127.0.0.1:{server.port}/v1", f"{server.url}/health"):
        done = status(server, "--json", address)
        assert done.returncode == 0, done.stdout
        report = json.loads(done.stdout)
        assert (report["state"], report["gateway_state"]) == ("up", "running")
        assert report["gateway_pid"] is None
        assert report["gateway_health_url"] == server.url


def test_the_gateway_of_the_settings(server: ServerProcess) -> None:
    shown = facts(status(server, gateway_health_url=f"127.0.0.1:{server.port}/"))
    assert (shown["state"], shown["address"]) == ("up", server.url)
    assert "needs a key" in shown["reason"]  # not even to this machine is ours sent
    known = status(server, gateway_health_url=server.url, gateway_health_key=server.key)
    assert facts(known)["activity"] == "running"


def test_nothing_listens(server: ServerProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    for done in (status(server, port=port), status(server, f"127.0.0.1:{port}")):
        assert done.returncode == 1
        shown = facts(done)
        assert shown["state"] == "down"
        assert "cannot be reached" in shown["reason"]


def test_a_refused_key(server: ServerProcess) -> None:
    done = status(server, port=server.port, api_key="not-the-key-of-this-server")
    assert (done.returncode, done.stdout) == (2, "")
    assert "key" in done.stderr
    assert "not-the-key" not in done.stderr


@pytest.mark.parametrize("address", ["ftp://a", "http://me:secret@a", "a:0"])
def test_what_is_no_address(server: ServerProcess, address: str) -> None:
    done = status(server, address)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: url: ")
    assert "secret" not in done.stderr


@pytest.mark.parametrize(
    ("given", "sent"), [("", None), ("the-key-of-the-other", "Bearer the-key-of-the-other")]
)
def test_the_key_of_this_machine_is_sent_to_no_other(
    server: ServerProcess, given: str, sent: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway at a name that is not one of a loopback address, as another machine has."""
    monkeypatch.setenv("NO_PROXY", "*")
    heads: list[bytes] = []
    with socket.create_server(("", 0)) as listener, ThreadPoolExecutor(1) as pool:
        host, port = socket.gethostname(), listener.getsockname()[1]
        listener.settimeout(TIMEOUT)
        asked = pool.submit(_answer_twice, listener, heads)
        done = status(server, f"{host}:{port}", api_key=server.key, client_key=given)
        asked.result()
    assert facts(done)["state"] == "up"
    assert server.key.encode() not in b"".join(heads)
    assert heads[0].startswith(b"GET /health/detailed ")
    assert (b"authorization: " in heads[0].lower()) is (sent is not None)
    assert (sent or "").encode() in heads[0]
    assert b"authorization" not in heads[1].lower()


def _answer_twice(listener: socket.socket, heads: list[bytes]) -> None:
    for code, body in ((404, b"{}"), (200, b'{"status": "ok"}')):
        connection, _ = listener.accept()
        with connection:
            heads.append(connection.recv(65_536))
            head = f"HTTP/1.1 {code} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode() + body)
