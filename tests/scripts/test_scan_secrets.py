"""The search for secrets finds one that is planted, and its baseline has been reviewed."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytest.importorskip("detect_secrets", reason="in `nox -s secrets`")


def scan(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Scan the tracked files of a folder."""
    command = [sys.executable, "-m", "scripts.scan_secrets", *flags]
    environ = {"PYTHONPATH": str(ROOT), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    return subprocess.run(
        command, cwd=folder, env=environ, check=False, capture_output=True, text=True
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one harmless file."""
    (tmp_path / "app.py").write_text("print('hello')\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    return tmp_path


def plant(repository: Path, name: str, text: str) -> None:
    """Add a tracked file."""
    (repository / name).write_text(text)
    subprocess.run(["git", "add", name], cwd=repository, check=True)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("settings.toml", 'api_key = "{hex}"'),
        ("notes.md", "Open http://127.0.0.1:8642/#key=ht-{url}"),
        ("client.js", 'const token = "ghp_{letters}";'),
        ("deploy.env", "AWS_KEY=AKIA{upper}"),
    ],
)
def test_a_planted_secret_is_found_and_not_repeated(repository: Path, name: str, line: str) -> None:
    assert scan(repository).returncode == 0
    hexed = secrets.token_hex(20)
    planted = {
        "hex": hexed,
        "url": secrets.token_urlsafe(32),
        "letters": hexed[:36],
        "upper": hexed[:16].upper(),
    }
    plant(repository, name, f"first\n{line.format(**planted)}\n")
    result = scan(repository)
    assert result.returncode == 1
    assert f"{name}:2: " in result.stdout
    assert not any(value in result.stdout for value in planted.values())


def test_what_the_baseline_lists_is_known_wherever_it_moves(repository: Path) -> None:
    line = f'password = "{secrets.token_hex(20)}"\n'
    plant(repository, "example.py", line)
    assert scan(repository, "--update").returncode == 0
    plant(repository, "example.py", f"\n\n{line}")
    assert scan(repository).returncode == 0
    plant(repository, "other.py", line)
    assert scan(repository).returncode == 1


def test_files_that_are_not_tracked_do_not_count(repository: Path) -> None:
    (repository / "private.env").write_text(f'api_key = "{secrets.token_hex(20)}"\n')
    assert scan(repository).returncode == 0


def test_every_entry_of_the_baseline_was_reviewed() -> None:
    document = json.loads((ROOT / ".secrets.baseline").read_text("utf-8"))
    assert document
    for path, entries in document.items():
        assert (ROOT / path).exists()
        assert [entry for entry in entries if entry["is_secret"] is not False] == []
