"""The systemd unit: verified by systemd where it is installed, and that it agrees with the package."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from hermes_trio.cli.commands import program
from hermes_trio.server.shutdown import ShutdownTimeouts
from hermes_trio.server.workers import KILL_MARGIN_SECONDS
from hermes_trio.settings import Settings
from tests.support.server_process import ROOT

TEXT = (ROOT / "deploy/hermes-trio.service").read_text("utf-8")
PROGRAM = "/opt/hermes-trio/bin/hermes-trio"
MAX_EXPOSURE = 35
"""Ten times the figure of ``systemd-analyze security``, from 0 (best) to 100."""


def setting(name: str) -> str:
    [value] = re.findall(rf"^{name}=(.*)$", TEXT, re.MULTILINE)
    return str(value)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that exists here."""
    path = tmp_path / "hermes-trio.service"
    path.write_text(TEXT.replace(PROGRAM, str(shutil.which("true"))), encoding="utf-8")
    return path


@pytest.fixture
def analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("systemd-analyze is not installed")
    return found


def test_systemd_accepts_it(analyze: str, unit: Path) -> None:
    done = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_it_is_hardened(analyze: str, unit: Path) -> None:
    command = [
        analyze,
        "security",
        "--offline=true",
        f"--threshold={MAX_EXPOSURE}",
        "--no-pager",
        str(unit),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "Overall exposure level" in done.stdout


def test_what_the_sandbox_of_tools_needs_is_not_forbidden() -> None:
    """With any of these, bubblewrap cannot create its namespaces or mount its own /proc."""
    for name in (
        "RestrictNamespaces", "PrivateUsers", "ProtectProc", "ProcSubset", "ProtectKernelTunables", "ProtectKernelLogs",
    ):  # fmt: skip
        assert f"\n{name}=" not in TEXT, name
    assert "@mount" in setting("SystemCallFilter")


def test_there_is_time_to_drain() -> None:
    total = ShutdownTimeouts.from_settings(Settings()).total
    assert int(setting("TimeoutStopSec")) > total + KILL_MARGIN_SECONDS


@pytest.mark.parametrize("name", ["ExecStart", "ExecStartPre"])
def test_the_command_exists(name: str) -> None:
    path, *words = setting(name).split()
    assert path == PROGRAM
    command, *flags = words
    shown = CliRunner().invoke(program, [command, "--help"]).output
    assert [flag for flag in flags if flag.startswith("--") and flag not in shown] == []
