"""The pages of guarantees and of the threat model name tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {
    path: (ROOT / path).read_text("utf-8")
    for path in ("docs/reference/guarantees.md", "docs/discussion/threat_model.md")
}
NAMED = sorted(
    {
        (path, name)
        for text in PAGES.values()
        for path, name in re.findall(r"`(tests/[\w/.]+\.(?:py|js))(?:::([\w:]+))?`", text)
    }
)
CONTROLS = PAGES["docs/discussion/threat_model.md"].partition("## Controls")[2]


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_named_test_exists(path: str, name: str) -> None:
    text = (ROOT / path).read_text("utf-8")
    *classes, function = name.split("::")
    for each in classes:
        assert re.search(rf"^class {each}\b", text, re.MULTILINE)
    indent = "    " if classes else ""
    if function:
        assert re.search(rf"^{indent}(async )?def {function}\(", text, re.MULTILINE)


def rows(text: str) -> list[str]:
    """The rows of all tables, without their heads."""
    lines = re.findall(r"^\| .*\|$", text, re.MULTILINE)
    return [line for line in lines if not line.startswith(("| guarantee |", "| threat |"))]


def test_every_guarantee_names_a_test() -> None:
    found = rows(PAGES["docs/reference/guarantees.md"])
    assert len(found) > 20
    assert [row for row in found if "::" not in row] == []


def test_every_control_names_a_test() -> None:
    """Or the session that holds it."""
    found = rows(CONTROLS)
    assert len(found) > 30
    assert [row for row in found if "::" not in row and "`nox -s " not in row] == []
