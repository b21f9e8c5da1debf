"""A real shell runs no dangerous program that the analysis misses.

Random scripts, with a harmless stub as the program.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_trio.tools.danger import find_dangers

PIECES = [
    "rm -rf x", "rm -rf x", "\nrm -rf x\n", "rm", " -rf x", " ", " ", "'", '"', "`", "$(", ")", "(", "{ ", "; }", "${x:-", "}",
    ";", "&&", "||", "|", "<<E\n", "\nE\n", "<<'E'\n", "<<-E\n", "\n", "\\", "\\\n", "#", "$((", "))", "$'", "x", "echo ",
    "cat ", "eval ", "sh -c ", "env ", "A=1 ", ">f ", "<f ", "case a in a) ", ";; esac", "if true; then ", "; fi", "f() { ",
    "f", "!", "\t", "$x", '"$x"', "command ", "exec ", "x=rm; ", "true ", "xargs ", "trap '", "' EXIT",
]  # fmt: skip
SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with programs, among them a stub that leaves a mark when it is called with dangerous arguments."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "work").mkdir()
    stub = programs / "rm"
    stub.write_text(f"#!/bin/sh\ncase \"$*\" in *-rf*) : >'{tmp_path}/mark';; esac\n")
    stub.chmod(0o755)
    for name in ("sh", "cat", "env", "xargs"):
        (programs / name).symlink_to(shutil.which(name) or "/nowhere")
    return tmp_path


def scripts(seed: int, count: int) -> Iterator[str]:
    """Yield random scripts that name the program."""
    chance = random.Random(seed)
    while count:
        script = "".join(chance.choice(PIECES) for _ in range(chance.randint(2, 14)))
        if "rm" in script:
            count -= 1
            yield script


@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_not_seen_does_not_run(shell: str, folder: Path) -> None:
    unseen = [script for script in scripts(len(shell), 3_000) if not find_dangers(script)]
    assert len(unseen) > 50
    for script in unseen:
        subprocess.run(
            [shutil.which(shell) or shell, "-c", script],
            cwd=folder / "work",
            env={"PATH": str(folder / "bin")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=10,
            check=False,
        )
        assert not (folder / "mark").exists(), script
