"""Lists of runs in the file: every filter is answered from an index."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import attrs
import pytest

from hermes_trio.core.dialects.runs import ends_in_states
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.records import ALL_ENDS, NEWEST, OLDEST, Ownership, RunPage, RunQuery
from hermes_trio.stores.sql import runs as run_queries
from hermes_trio.stores.sql.run_lists import find_ranges, list_page
from hermes_trio.stores.sqlite import open_sqlite
from hermes_trio.stores.sqlite.schema import MIGRATIONS, migrate
from tests.stores.helpers import writer_connection
from tests.stores.samples import ended, header

KINDS = ("chat", "responses", "runs", "sessions")
FAILED = Outcome(Status.FAILED, Reason.AGENT_ERROR)
MANY = 1000
PAGE_STEPS = 2_000
"""Instructions of SQLite's virtual machine for one page: about 20 for each run on it, 60 for each
range, and some hundred besides."""

ENDS = {
    "all": ALL_ENDS,
    "none": frozenset[tuple[Status, Reason]](),
    "failed": ends_in_states({"failed"}),
    "completed": ends_in_states({"completed"}),
    "two": ends_in_states({"failed", "cancelled"}),
}
ORDERS: list[dict[str, Any]] = [{}, {"newest_first": False, "after": OLDEST}]
FILTERS = [
    pytest.param(
        RunQuery(live=live, ends=ENDS[ends], kinds=frozenset(kinds), session_id=session, **order),
        id=f"{'oldest' if order else 'newest'}-{ends}{'-live' * live}-{','.join(kinds)}-{session}",
    )
    for order, ends, live, kinds, session in product(
        ORDERS, ENDS, (True, False), ((), ("chat",), ("chat", "responses")), ("", "s")
    )
]


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    """A database with many completed responses in one session, and older runs of every other kind."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        fill(connection)
        yield connection


def fill(connection: sqlite3.Connection) -> None:
    """Store old runs that failed, one that is in progress, and many that completed."""
    connection.execute("BEGIN")
    for number, kind in enumerate(KINDS):
        failed = attrs.evolve(ended(f"failed {kind}", float(number), kind=kind), outcome=FAILED)
        run_queries.EndJob(failed)(connection)
    run_queries.begin(connection, header("live", 5.0, kind="chat"), Ownership("me"))
    for number in range(MANY):
        run_queries.EndJob(ended(f"{number:04}", 10.0 + number))(connection)
    connection.execute("COMMIT")


@pytest.mark.parametrize("query", FILTERS)
def test_every_filter_uses_an_index(database: sqlite3.Connection, query: RunQuery) -> None:
    for statement, values in find_ranges(database, "ann", query):
        plan = database.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
        steps = [row[-1] for row in plan]
        assert steps[0].startswith("SEARCH runs USING COVERING INDEX"), steps
        assert not any("TEMP B-TREE" in step or "SCAN runs" in step for step in steps), steps


@pytest.mark.parametrize("query", FILTERS)
def test_a_page_costs_no_more_than_its_runs(database: sqlite3.Connection, query: RunQuery) -> None:
    """A plan does not show how much of an index is read."""
    page, steps = count_steps(database, query)
    assert len(page.runs) <= query.limit
    assert steps < PAGE_STEPS


def count_steps(connection: sqlite3.Connection, query: RunQuery) -> tuple[RunPage, int]:
    """Return a page, and about how many instructions SQLite needed for it."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 10

    connection.set_progress_handler(count, 10)
    try:
        return list_page(connection, "ann", query), steps
    finally:
        connection.set_progress_handler(None, 0)


@pytest.mark.parametrize("order", ORDERS)
def test_ranges_are_merged_in_order(database: sqlite3.Connection, order: dict[str, Any]) -> None:
    query = RunQuery(kinds=frozenset({"chat", "responses"}), limit=MANY + 10, **order)
    found = [run.header.run_id for run in list_page(database, "ann", query).runs]
    oldest_first = ["failed chat", "failed responses", "live", *(f"{n:04}" for n in range(MANY))]
    assert found == (oldest_first if order else oldest_first[::-1])


async def test_a_database_without_the_listed_column(path: Path) -> None:
    """Only the header says that a run is not to be listed."""
    async with open_sqlite(path) as store:
        await store.end_run(ended("a", 1.0))
        await store.end_run(ended("b", 2.0, request={"store": False}))
        writer_connection(store).execute("UPDATE runs SET listed = 1")
        page = await store.list_runs("ann", RunQuery())
        assert [run.header.run_id for run in page.runs] == ["a"]


async def test_a_database_of_an_earlier_version_is_listed(path: Path) -> None:
    path.parent.mkdir()
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as old,
        closing(sqlite3.connect(":memory:", isolation_level=None)) as new,
    ):
        migrate(old, MIGRATIONS[:7])
        migrate(new)
        fill(new)
        for table in ("runs", "sessions"):
            names = [name for _, name, *_ in old.execute(f"PRAGMA table_info({table})")]
            rows = new.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall()
            old.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", rows)
    async with open_sqlite(path) as store:
        page = await store.list_runs("ann", RunQuery(live=False, ends=ENDS["failed"]))
        assert [run.header.run_id for run in page.runs] == [
            f"failed {kind}" for kind in KINDS[::-1]
        ]
        page = await store.list_runs("ann", RunQuery(NEWEST, live=True, ends=ENDS["none"]))
        assert [run.header.run_id for run in page.runs] == ["live"]
