"""The Dockerfile agrees with the package, and its commands work on a read-only file system.

The image is not built here, as that needs a container engine. bubblewrap stands in for one.
"""

from __future__ import annotations

import json
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from hermes_trio.settings.model import Settings
from tests.support.fakes import make_harness
from tests.support.server_process import ROOT

TEXT = (ROOT / "Dockerfile").read_text("utf-8")
IGNORED = (ROOT / ".dockerignore").read_text("utf-8").split()


def test_what_is_copied_exists_and_is_sent_to_the_engine() -> None:
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", TEXT, re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    assert "hermes_trio" in names
    for name in names:
        assert (ROOT / name).exists()
        assert any(fnmatch(name, rule[1:]) for rule in IGNORED if rule.startswith("!")), name


def test_extras_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    [extras] = re.findall(r"^ARG EXTRAS=(.*)$", TEXT, re.MULTILINE)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert "postgres" in extras  # compose.yaml and kubernetes.yaml use it


def test_the_health_check_asks_the_server() -> None:
    [(port, path)] = re.findall(r"http://127\.0\.0\.1:(\d+)(/[a-z/]*)", TEXT)
    assert int(port) == Settings().port
    assert f"EXPOSE {port}\n" in TEXT
    assert path in {rule.rule for rule in make_harness().app.url_map.iter_rules()}


def test_the_server_is_not_root() -> None:
    [user] = re.findall(r"^USER (\d+):\d+$", TEXT, re.MULTILINE)
    assert int(user) > 0
    assert f"useradd --uid {user} " in TEXT


DATA = "/mnt"  # instead of /data: a folder that every machine has

# What an engine does with the image: start the entry point, run the health check until it passes, and
# send the stop signal. The arguments are those of the server, as the rest is quoted in the text.
ENGINE = """
"$@" & server=$!
while kill -0 "$server" && ! {check} 2>/dev/null; do sleep 0.1; done
{check} && echo healthy
touch /usr/written 2>/dev/null || echo "read-only"
ls
kill -{signal} "$server"; wait "$server"; echo "exit code $?"
{check} 2>/dev/null || echo unhealthy
"""


@pytest.mark.slow
def test_it_serves_on_a_read_only_file_system_without_rights(tmp_path: Path) -> None:
    """In a network of its own, so that the port of the image is free."""
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is None:
        pytest.skip("bubblewrap is not installed")
    python, root = sys.prefix, str(ROOT)
    box = [
        bubblewrap, "--unshare-user", "--uid", "10001", "--gid", "10001", "--unshare-net", "--die-with-parent",
        "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--ro-bind", python, python,
        "--ro-bind", root, root, "--bind", str(tmp_path), DATA, "--chdir", DATA, "--clearenv",
        "--setenv", "PATH", f"{python}/bin:/usr/bin:/bin", "--setenv", "PYTHONPATH", root,
        "--setenv", "HOME", DATA, "--setenv", "HERMES_TRIO_DATA_DIR", DATA, "--setenv", "API_SERVER_KEY", secrets.token_hex(16),
    ]  # fmt: skip
    if subprocess.run([*box, "true"], check=False).returncode:
        pytest.skip("this machine allows no user namespaces")
    check, entry, command = (
        json.loads(text)
        for text in re.findall(r"^ *(?:CMD|ENTRYPOINT) (\[.*\])$", TEXT, re.MULTILINE)
    )
    assert entry == ["hermes-trio"]
    [signal] = re.findall(r"^STOPSIGNAL SIG(.*)$", TEXT, re.MULTILINE)
    script = ENGINE.format(check=shlex.join(check), signal=signal)
    done = subprocess.run(
        [*box, "bash", "-c", script, "engine", "python3", "-m", "hermes_trio", *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = done.stdout.splitlines()
    for line in ("healthy", "read-only", "hermes.db", "token-secret", "exit code 0", "unhealthy"):
        assert line in said, f"no {line!r} in\n{done.stdout}\n{done.stderr}"
