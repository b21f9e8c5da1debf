"""``hermes-trio doctor`` next to a running server."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.server_process import ROOT, TIMEOUT, ServerProcess

pytestmark = pytest.mark.xdist_group("e2e-shared")


def doctor(server: ServerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "hermes_trio",
        "doctor",
        "--port",
        str(server.port),
        *arguments,
    ]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT, cwd=ROOT,
        env=server.plan.environment("doctor"), check=False,
    )  # fmt: skip


def test_a_running_server_is_recognised(server: ServerProcess) -> None:
    done = doctor(server, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert "a hermes-trio server (version" in found["port"]["says"]
    assert found["models"]["says"] == "the server offers hermes-agent"
    assert "in use by a running server" in found["store"]["says"]
    del found["sandbox"]  # not every machine has one
    assert {finding["level"] for finding in found.values()} == {"ok"}
    assert server.key not in done.stdout


def test_a_server_with_another_key(
    server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    done = doctor(server, "--data-dir", str(tmp_path_factory.mktemp("other")))
    assert done.returncode == 0
    assert "does not list its models: no key" in done.stdout
