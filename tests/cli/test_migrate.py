"""``hermes-trio store migrate``: what it prints, and its exit codes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import trio

from hermes_trio.cli import commands as cli
from hermes_trio.cli.migrate import ProgressLine, format_comparisons
from hermes_trio.stores.migration import Comparison, MigrationProgress, RowDigest
from hermes_trio.stores.sqlite import open_sqlite
from tests.stores.samples import end_chain, ended
from tests.support.postgres import PostgresServer

SECRET = "hush-hush"


@pytest.fixture
def source(tmp_path: Path) -> str:
    """The URL of a file with three runs."""

    async def make() -> None:
        async with open_sqlite(tmp_path / "hermes.db") as store:
            await end_chain(store, "a", "b")
            await store.end_run(ended("c", principal="bob"))

    trio.run(make)
    return f"sqlite:///{tmp_path}/hermes.db"


def test_what_was_moved_is_printed(
    postgres_server: PostgresServer, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = postgres_server.create_database()
    assert cli.run(["store", "migrate", source, target]) == 0
    out, err = capsys.readouterr()
    assert err == ""  # no terminal, no progress
    *lines, last = out.splitlines()
    rows = [line.split() for line in lines]
    assert rows[0] == ["table", "principal", "rows", "hash", "target"]
    assert {(row[0], row[1], row[2]) for row in rows[1:]} >= {
        ("messages", "ann", "4"), ("messages", "bob", "2"), ("runs", "ann", "2"), ("sessions", "bob", "1"),
    }  # fmt: skip
    assert {row[-1] for row in rows[1:]} == {"equal"}
    assert last == "14 rows were moved and verified. Start the server with the new URL."
    assert cli.run(["store", "migrate", source, target]) == 1
    assert capsys.readouterr() == (
        "",
        "Error: the target is not empty: records have been moved to it before\n",
    )


def test_a_wrong_url_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    target = f"postgres:ann:{SECRET}@db/x"
    assert cli.run(["store", "migrate", "sqlite:///hermes.db", target]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("Error: TARGET_URL: postgres: is not a known kind of store")
    assert SECRET not in err


@pytest.mark.parametrize(
    "target", ["postgresql://ann:{}@/x?host={}", "postgresql://ann@/x?password={}&host={}"]
)
def test_a_target_that_cannot_be_reached(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    pytest.importorskip("psycopg")
    assert cli.run(["store", "migrate", source, target.format(SECRET, tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "the database server cannot be reached" in err
    assert SECRET not in err


class Terminal(io.StringIO):
    """Something that a person looks at."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def test_progress_on_a_terminal() -> None:
    terminal = Terminal()
    line = ProgressLine(terminal)
    line.show(MigrationProgress("reading", "log", 2_000))
    line.show(MigrationProgress("copying", "runs", 1_000, 25_000))
    line.erase()
    assert [each.removesuffix("\r") for each in terminal.getvalue().split("\x1b[K")] == [
        "", "reading: 2,000 rows (log)", "copying: 1,000 of 25,000 rows (runs)", "",
    ]  # fmt: skip


def test_differences_and_odd_names_are_legible() -> None:
    rows = RowDigest()
    rows.add(("a", 1))
    lines = list(format_comparisons([Comparison("log", "\0\n" + "x" * 50, rows, RowDigest())]))
    assert len(lines) == 2
    assert lines[1].startswith(r"log    \x00\nxxx")
    assert "..." in lines[1]
    assert lines[1].endswith(f"DIFFERENT: 0 rows, {'0' * 16}")
