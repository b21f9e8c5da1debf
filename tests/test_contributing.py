"""The files for contributors name only what exists in the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md", "README.md")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
NAMED = sorted(
    set(re.findall(r"`((?:hermes_trio|tests|docs|benchmarks|scripts)(?:/[\w./]+)?)`", CONTRIBUTING))
)
CHANGES = CONTRIBUTING.partition("<!-- begin: common changes -->")[2]
ROWS = re.findall(r"^\| (?!change|-)(.+?) \| (.+) \|$", CHANGES, re.MULTILINE)


@pytest.mark.parametrize("path", NAMED)
def test_every_path_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("name", FILES)
def test_every_link_leads_somewhere(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert [target for target in targets if not (ROOT / target).exists()] == []


@pytest.mark.parametrize(("change", "files"), ROWS, ids=[change for change, _ in ROWS])
def test_a_change_touches_few_files(change: str, files: str) -> None:
    assert 1 <= len(re.findall(r"`hermes_trio/", files)) <= 3
    for attribute, path in re.findall(r"`([\w.]+)` in `(hermes_trio/[\w/]+\.py)`", files):
        assert re.search(
            rf"\b{attribute.rpartition('.')[2]}\b", (ROOT / path).read_text("utf-8")
        ), attribute


def test_every_session_exists() -> None:
    rows = re.findall(
        r"^\| (`.+?) \|",
        CONTRIBUTING.partition("## Set up")[2].partition("## Layout")[0],
        re.MULTILINE,
    )
    named = {word for row in rows for word in re.findall(r"`(\w+)", row)}
    defined = set(
        re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text("utf-8"), re.MULTILINE)
    )
    assert named
    assert named <= defined


def test_ci_calls_the_same_sessions() -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    defined = set(
        re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text("utf-8"), re.MULTILINE)
    )
    listed = re.findall(
        r"\w+",
        "".join(re.findall(r"session: \[([^\]]+)\]", text)).replace("-- --quick --alone", ""),
    )
    called = {*re.findall(r"nox -s (\w+)", text), *listed}
    assert {"tests", "lint", "typing", "docs", "versions"} <= called <= defined
