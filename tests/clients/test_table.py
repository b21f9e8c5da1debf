"""The table of clients: how it is made, and that the documentation has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.catalogue import CLIENTS
from tests.clients.table import BEGIN, END, FEATURES, NOT_RUN, Cell, ClientTable
from tests.support.server_process import ROOT

FIRST = CLIENTS[0]


def row_of(table: ClientTable) -> list[str]:
    """The cells of the first client."""
    return [cell.strip() for cell in table.markdown().splitlines()[2].strip("|").split("|")]


def test_what_was_not_run_is_no_tick() -> None:
    assert row_of(ClientTable()) == [FIRST.name, NOT_RUN, FIRST.api, *[""] * len(FEATURES)]


def test_only_what_passed_is_a_tick() -> None:
    table = ClientTable({FIRST.id: "1.2"})
    table.add(f"test_answer[{FIRST.id}]", Cell("passed"))
    table.add(f"test_stream[{FIRST.id}]", Cell("failed", "two runs"))
    table.add(f"test_failure[{FIRST.id}]", Cell("skipped", "it always streams"))
    table.add("test_of_something_else", Cell("failed"))
    assert row_of(table)[:5] == [FIRST.name, "1.2", FIRST.api, "✓", "✗ (1)"]
    assert table.markdown().splitlines()[-2:] == [
        f"1. {FIRST.name}, {FIRST.api}, stream: two runs",
        f"2. {FIRST.name}, {FIRST.api}, failure: it always streams",
    ]


@pytest.mark.parametrize("outcomes", [("passed", "failed"), ("failed", "passed")])
def test_a_failure_of_a_test_or_of_its_fixture_counts(outcomes: tuple[str, ...]) -> None:
    table = ClientTable()
    for outcome in outcomes:
        table.add(f"test_answer[{FIRST.id}]", Cell(outcome))
    assert row_of(table)[3].startswith("✗")


def test_only_the_table_of_a_page_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{BEGIN}\n\nold\n\n{END}\n\nRest.\n")
    ClientTable().write(page)
    text = page.read_text()
    assert text.startswith(f"# Title\n\n{BEGIN}\n\n| client |")
    assert text.endswith(f"|\n\n{END}\n\nRest.\n")
    assert "old" not in text


def test_the_documentation_has_every_client_and_feature() -> None:
    page = (ROOT / "docs/reference/clients.md").read_text("utf-8")
    table = page.partition(BEGIN)[2].partition(END)[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    assert rows[0] == ["client", "version", "API", *FEATURES.values()]
    assert [(row[0], row[2]) for row in rows[2:]] == [(spec.name, spec.api) for spec in CLIENTS]
    assert all(f"| {name} |" in page for name in FEATURES.values())
