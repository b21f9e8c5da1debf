"""The page of guarantees names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/guarantees.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_guarantee_has_its_test(path: str, name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text("utf-8"), re.MULTILINE)


def test_every_row_names_a_test() -> None:
    rows = [
        line
        for line in PAGE.splitlines()
        if line.startswith("| ") and not line.startswith("| guarantee")
    ]
    assert len(rows) > 20
    assert [row for row in rows if "::" not in row] == []
