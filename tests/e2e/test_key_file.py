"""The key file of a running server: keys are added and revoked, and a broken file changes nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx2
import pytest

from hermes_trio.keys import add_key, remove_key
from tests.e2e.conftest import AGENTS
from tests.support.postgres import run_postgres
from tests.support.server_process import LaunchOptions, ServerProcess, eventually, serving

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("e2e-key-file")]


def reload(server: ServerProcess, words: str = "reloaded ") -> None:
    """Send the signal and wait until the log has these words once more."""
    before = server.log.count(words)
    server.signal(signal.SIGHUP)
    eventually(lambda: server.log.count(words) > before)


def status(server: ServerProcess, key: str) -> int:
    """How a request with a key is answered."""
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.get(f"{server.url}/api/sessions", headers=headers).status_code


def test_keys_change_while_the_server_runs(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    ada = add_key(path, "ada", {})
    options = LaunchOptions(tmp_path, ("--agent", AGENTS, "--api-key-file", str(path)))
    doubt = "the key file names an unknown profile"
    with serving(options, expected=f"cannot reload|refused a key|{doubt}") as server:
        assert doubt not in server.log
        eve = add_key(path, "eve", {"routes": ["sessions:read"], "profiles": ["default", "codr"]})
        assert (status(server, ada), status(server, eve)) == (200, 401)
        reload(server)
        assert (status(server, ada), status(server, eve)) == (200, 200)
        [line] = [line for line in server.log.splitlines() if doubt in line]
        assert line.endswith("entry=keys.eve profile=codr")
        remove_key(path, "ada")
        whole = path.read_text()
        path.write_text(whole + "[keys.broken\n")
        reload(server, "cannot reload")
        assert (status(server, ada), status(server, eve)) == (200, 200)
        path.write_text(whole)
        reload(server)
        assert (status(server, ada), status(server, eve)) == (401, 200)
        assert "principal=eve" in server.log
        assert eve not in server.log
        assert ada not in server.log


def test_all_workers_read_the_file_again(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    ada = add_key(path, "ada", {})
    flags = ("--workers", "2", "--agent", AGENTS, "--api-key-file", str(path))
    with run_postgres() as postgres:
        options = LaunchOptions(tmp_path, flags, {"store": postgres.create_database()})
        with serving(options, expected="refused a key") as server:
            eventually(lambda: server.log.count("a worker is ready") == 2)
            eve = add_key(path, "eve", {})
            remove_key(path, "ada")
            server.signal(signal.SIGHUP)
            eventually(lambda: server.log.count("reloaded ") == 2)
            answers = {(status(server, ada), status(server, eve)) for _ in range(20)}
            assert answers == {(401, 200)}
