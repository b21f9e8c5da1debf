"""Real shells change nothing when they run what is not asked about.

The commands are those of the corpus, and random ones.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_trio.tools.danger import find_dangers
from hermes_trio.tools.harmless import UNASKED_ENVIRONMENT
from tests.tools.test_danger import HARMLESS

PIECES = [
    "rm -rf x", "rm -rf x", "\nrm -rf x\n", "rm", " -rf x", " ", " ", "'", '"', "`", "$(", ")", "(", "{ ", "; }", "${x:-", "}",
    ";", "&&", "||", "|", "<<E\n", "\nE\n", "<<'E'\n", "<<-E\n", "\n", "\\", "\\\n", "#", "$((", "))", "$'", "x", "echo ",
    "cat ", "eval ", "sh -c ", "env ", "A=1 ", ">f ", "<f ", "case a in a) ", ";; esac", "if true; then ", "; fi", "f() { ",
    "f", "!", "\t", "$x", '"$x"', "command ", "exec ", "x=rm; ", "true ", "xargs ", "trap '", "' EXIT", "[ ", " ]", "$x",
    "for x in rm; do ", "; done", ">", ">>", "2>&1", "&", "~", "*", "{rm,-rf}", "[[ ", " ]]", "=", "echo 'a' ", 'echo "a" ',
]  # fmt: skip
SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with programs, among them a stub that leaves a mark when it is called."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "work").mkdir()
    stub = programs / "rm"
    stub.write_text(f"#!/bin/sh\n: >'{tmp_path}/mark'\n")
    stub.chmod(0o755)
    for name in ("sh", "cat", "env", "xargs"):
        (programs / name).symlink_to(shutil.which(name) or "/nowhere")
    return tmp_path


def scripts(seed: int, count: int) -> Iterator[str]:
    """Yield random scripts that name the program."""
    chance = random.Random(seed)
    while count:
        script = "".join(chance.choice(PIECES) for _ in range(chance.randint(2, 14)))
        if "rm" in script or ">" in script:
            count -= 1
            yield script


def run(shell: str, script: str, directory: Path, environ: dict[str, str]) -> None:
    subprocess.run(
        [shutil.which(shell) or shell, "-c", script],
        cwd=directory,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=10,
        check=False,
    )


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("shell", SHELLS)
def test_random_commands(shell: str, folder: Path) -> None:
    unseen = [script for script in scripts(len(shell), 30_000) if not find_dangers(script)]
    assert len(unseen) > 100
    for script in unseen:
        run(shell, script, folder / "work", {"PATH": str(folder / "bin")})
        assert not (folder / "mark").exists(), script
        assert not any((folder / "work").iterdir()), script


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A workspace with the files that the corpus names."""
    for name in ("a.txt", "b.txt", "a b.txt", "src/a.py", "docs/a.md", "schema.sql"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("one 2\nfoo 1\n")
    (tmp_path / "a.json").write_text('{"a": {"b": 1}}')
    if shutil.which("git"):
        for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm x"):
            subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize("shell", SHELLS)
def test_the_corpus(shell: str, repository: Path) -> None:
    before = contents(repository)
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(repository)}
    for command in HARMLESS:
        run(shell, command, repository, environ | dict(UNASKED_ENVIRONMENT))
        after = contents(repository)
        index = str(repository / ".git/index")  # git refreshes it
        assert {**after, index: b""} == {**before, index: b""}, command


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
@pytest.mark.parametrize("command", ["git status", "git log", "git diff"])
def test_a_folder_that_looks_like_a_repository_starts_nothing(command: str, tmp_path: Path) -> None:
    fake = tmp_path / "fake"
    (fake / "objects").mkdir(parents=True)
    (fake / "refs").mkdir()
    (fake / "HEAD").write_text("ref: refs/heads/main\n")
    (fake / "config").write_text(
        f"[core]\nrepositoryformatversion = 0\nbare = false\nworktree = {tmp_path}\n"
        f"fsmonitor = touch {tmp_path}/mark; false\n"
    )
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    run("sh", command, fake, environ)
    assert (tmp_path / "mark").exists() or command != "git status", "the attack works without"
    (tmp_path / "mark").unlink(missing_ok=True)
    run("sh", command, fake, environ | dict(UNASKED_ENVIRONMENT))
    assert not (tmp_path / "mark").exists()
