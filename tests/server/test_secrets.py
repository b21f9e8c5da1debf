"""What other processes of the server's user can learn about its secrets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_trio.server.process_secrets import secret_variables
from hermes_trio.settings import load

SECRETS = {
    "API_SERVER_KEY": "k" * 30,
    "OPENAI_API_KEY": "canary-openai",
    "OTHER_KEY": "canary-other",
    "DATABASE_URL": "sqlite:////tmp/x.db",
}


def variables(folder: Path, text: str = "", agent: str = "upstream") -> set[str]:
    path = folder / "config.toml"
    path.write_text(f'agent = "{agent}"\nbase_url = "http://localhost"\n{text}')
    environ = {**SECRETS, "HOME": str(folder), "HERMES_TRIO_UPSTREAM_API_KEY": "canary-up"}
    return secret_variables(load({}, environ, path))


PROFILE = """
[profiles.other]
base_url = "http://localhost"
api_key_env = "OTHER_KEY"
"""


def test_what_the_settings_have_is_not_needed(tmp_path: Path) -> None:
    expected = {"API_SERVER_KEY", "HERMES_TRIO_UPSTREAM_API_KEY", "DATABASE_URL"}
    assert variables(tmp_path) == expected
    assert variables(tmp_path, PROFILE) == expected | {"OTHER_KEY"}


def test_other_agents_may_read_the_keys_of_models(tmp_path: Path) -> None:
    assert variables(tmp_path, PROFILE, "hermes") == {"API_SERVER_KEY", "DATABASE_URL"}
    assert variables(tmp_path, PROFILE, "mine:factory") == {"API_SERVER_KEY", "DATABASE_URL"}


def test_what_commands_are_given_stays(tmp_path: Path) -> None:
    text = '[options.terminal]\nenvironment = ["DATABASE_URL"]\n'
    assert variables(tmp_path, text) == {"API_SERVER_KEY", "HERMES_TRIO_UPSTREAM_API_KEY"}


# Changing the user makes a process impossible to inspect, so the program first allows it again.
PROGRAM = """
import ctypes, os, subprocess, sys
from hermes_trio.server.process_secrets import forbid_inspection
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
def look():
    command = 'cat /proc/$PPID/environ || cat /proc/$PPID/maps; cat /proc/$$/environ >/dev/null || echo own'
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True).stdout
assert "canary" in look(), "a child can read it before"
forbid_inspection()
print(repr(look()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has /proc")
def test_children_cannot_read_the_first_environment() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd(), "KEY": "canary"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.stdout, ended.returncode) == ("''\n", 0), ended.stderr
