"""Starting: a problem is one line and exit code 2; otherwise the server prints a greeting."""

from __future__ import annotations

import socket
import stat
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import Launch
from tests.support.server_process import LaunchOptions, ServerProcess, run, serving
from tests.support.socket_client import open_chat_stream

pytestmark = pytest.mark.xdist_group("e2e-startup")

PARROT = """
class Parrot:
    def run(self, turn, emitter):
        with emitter.tool("lookup", {"word": turn.text}) as call:
            call.result = "a parrot repeats"
        emitter.text(f"You said: {turn.text}")


def factory(context):
    return Parrot()
"""


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a refused start leaves."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    return line


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal(run(LaunchOptions(tmp_path, ("--port", str(port)))))
    assert str(port) in line
    assert "in use" in line


@pytest.mark.parametrize("agent", ["nobody", "json:no_such_factory"])
def test_an_unknown_agent(tmp_path: Path, agent: str) -> None:
    assert agent.partition(":")[0] in refusal(run(LaunchOptions(tmp_path, ("--agent", agent))))


def test_other_machines_need_a_key(tmp_path: Path) -> None:
    assert "API_SERVER_KEY" in refusal(run(LaunchOptions(tmp_path, ("--host", "0.0.0.0"))))


def test_other_machines_need_a_key_that_is_hard_to_guess(tmp_path: Path) -> None:
    plan = LaunchOptions(tmp_path, ("--host", "0.0.0.0"), {"api_key": "password12345678"})
    assert "too easy to guess" in refusal(run(plan))


def test_one_data_folder_one_server(launch: Launch, tmp_path: Path) -> None:
    server = launch()
    assert "hermes.db is already open" in refusal(run(LaunchOptions(tmp_path)))
    assert server.is_idle


def test_a_store_that_cannot_be_opened(tmp_path: Path) -> None:
    """It keeps the server from starting, unless the operator prefers to lose records."""
    (tmp_path / "file").touch()
    arguments = ("--store", f"sqlite:///{tmp_path}/file/hermes.db")
    assert "store: " in refusal(run(LaunchOptions(tmp_path, arguments)))
    plan = LaunchOptions(tmp_path, ("--port", "0", *arguments, "--store-fallback", "memory"))
    with serving(plan, expected="the store cannot be opened") as server:
        assert "all records will be lost when the server stops" in server.log
        with open_chat_stream(server, "in-memory", "hello") as stream:
            assert stream.last_chunk()["choices"][0]["finish_reason"] == "stop"
        ready = server.get("/health/ready")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
        assert ready.headers["X-Hermes-Store-Fallback"] == "memory"


def test_a_check_starts_nothing(tmp_path: Path) -> None:
    done = run(LaunchOptions(tmp_path, ("--check",)))
    assert (done.returncode, done.stdout, done.stderr) == (0, "configuration ok\n", "")
    assert not (tmp_path / "data" / "hermes.db").exists()


def full_greeting(server: ServerProcess) -> str:
    """With the lines after the marker that the start waits for."""
    assert server.process.stdout is not None
    while not server.greeting.endswith("\n\n") or "curl" not in server.greeting:
        server.greeting += server.process.stdout.readline().decode()
    return server.greeting


def run_example(server: ServerProcess) -> str:
    """Run the command of the greeting as printed, and return its output."""
    (command,) = (
        line for line in full_greeting(server).splitlines() if line.strip().startswith("curl")
    )
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=20, check=True
    )
    return done.stdout


def test_the_key_is_shown_once_and_the_example_works_always(tmp_path: Path) -> None:
    with serving(LaunchOptions(tmp_path)) as first:
        key = first.key
        assert first.shown_key == key
        assert "data: [DONE]" in run_example(first)
    kept = tmp_path / "data" / "api-key"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    with serving(LaunchOptions(tmp_path)) as second:
        assert "hermes.tool.progress" in run_example(second)
        assert second.shown_key == ""
        assert key not in second.greeting
        assert second.key == key


def test_the_example_of_an_operators_key_and_another_agent(tmp_path: Path) -> None:
    """The key is in a variable of the shell, and only the demo agent knows commands."""
    (tmp_path / "my_parrot.py").write_text(PARROT)
    options = LaunchOptions(
        tmp_path,
        ("--agent", "my_parrot:factory"),
        {"api_key": "key-kq7w-vzx2-mhp9"},
        cwd=tmp_path,
    )
    with serving(options) as server:
        example = full_greeting(server).splitlines()[-2]
    assert '"Authorization: Bearer $HERMES_TRIO_API_KEY"' in example
    assert '"content": "Hello"' in example
    assert "kq7w" not in server.greeting


def test_an_agent_of_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "my_parrot.py").write_text(PARROT)
    with (
        serving(LaunchOptions(tmp_path, ("--agent", "my_parrot:factory"), cwd=tmp_path)) as server,
        open_chat_stream(server, "parrot", "hello") as stream,
    ):
        said = stream.rest()
    assert any("You said: hello" in data for data in said)
    assert any("a parrot repeats" in data for data in said)


def test_a_relative_data_folder(tmp_path: Path) -> None:
    """It belongs to the working directory."""
    with serving(LaunchOptions(tmp_path, settings={"data_dir": "data"}, cwd=tmp_path)) as server:
        assert server.is_idle
        assert (tmp_path / "data" / "hermes.db").exists()


def test_a_provider_that_refuses(tmp_path: Path) -> None:
    line = refusal(run(LaunchOptions(tmp_path, ("--agent", "tests.support.providers:refusing"))))
    assert line == "Error: base_url: this agent needs one"
