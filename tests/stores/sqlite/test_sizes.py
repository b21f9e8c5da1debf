"""The size of the file: retention bounds it, and freed pages are returned."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from hermes_trio.core.changes import TextAdded
from hermes_trio.core.log_codec import encode_changes
from hermes_trio.core.messages import MessageItem
from hermes_trio.core.records import EndedRun, LogBatch, PurgeResult
from hermes_trio.stores.sql import runs as run_queries
from hermes_trio.stores.sqlite import SqliteStore, connections, open_sqlite
from hermes_trio.stores.sqlite.connections import KEPT_FREE_PAGES, inspect_database
from hermes_trio.stores.sqlite.schema import MIGRATIONS, migrate
from tests.stores.helpers import completed_runs, contents, writer_connection
from tests.stores.samples import KEEP_ALL, ended

LENGTH = 200_000
LIMIT = 1_000_000
TEXT = random.Random(1).randbytes(LENGTH // 2).hex()  # can hardly be compressed


def response(number: int, session_id: str) -> EndedRun:
    """Return a response of 200 kB."""
    run = ended(f"{number}", float(number), session_id=session_id)
    return attrs.evolve(run, items=(MessageItem(TEXT[number:] + TEXT[:number]),))


def log_of(run: EndedRun) -> LogBatch:
    """Return the log of a response."""
    [item] = run.items
    assert isinstance(item, MessageItem)
    return LogBatch("ann", run.header.run_id, 0, encode_changes([TextAdded(0, item.text)]), 1)


def pages(store: SqliteStore, name: str) -> int:
    """Return a number of pages."""
    return int(writer_connection(store).execute(f"PRAGMA {name}").fetchone()[0])


def live_bytes(store: SqliteStore) -> int:
    """Return the size of what is in use in the file."""
    return (pages(store, "page_count") - pages(store, "freelist_count")) * pages(store, "page_size")


@pytest.mark.parametrize(("responses", "is_one_session"), [(200, False), (40, True)])
async def test_the_limit_bounds_the_file(path: Path, responses: int, is_one_session: bool) -> None:
    """Everything counts that a response leaves behind: its record, its log and its messages."""
    limits = attrs.evolve(KEEP_ALL, max_bytes=LIMIT)
    async with open_sqlite(path) as store:
        writer_connection(store).execute("PRAGMA synchronous = OFF")  # the disk may be busy
        for number in range(responses):
            run = response(number, "s" if is_one_session else f"session-{number}")
            await store.end_run(run, [log_of(run)] if is_one_session else ())
            if number % 20 == 19:
                while await store.purge(limits, 1.0) != PurgeResult():
                    pass
        assert 0.4 * LIMIT < live_bytes(store) < 1.5 * LIMIT
        assert pages(store, "freelist_count") <= KEPT_FREE_PAGES
        assert await store.find_run("ann", run.header.run_id) == run
    assert len(contents(path)) < 2 * LIMIT


@pytest.mark.parametrize("length", [10, 1_000, 30_000])
async def test_what_counts_is_about_what_is_used(path: Path, length: int) -> None:
    async with open_sqlite(path) as store:
        empty = live_bytes(store)
        connection = writer_connection(store)
        connection.execute("BEGIN")
        for number in range(300):
            run = ended(f"resp_{number:028x}", float(number), session_id=f"session-{number:028x}")
            run = attrs.evolve(run, items=(MessageItem(TEXT[number : number + length]),))
            run_queries.EndJob(run)(connection)
        connection.execute("COMMIT")
        [counted] = connection.execute(
            "SELECT (SELECT sum(size) FROM runs) + (SELECT sum(size) FROM sessions)"
        ).fetchone()
        assert 0.7 < counted / (live_bytes(store) - empty) < 1.3


async def test_a_file_of_an_earlier_version_is_rewritten_once(path: Path) -> None:
    create_before_vacuum(path)
    async with open_sqlite(path) as store:
        assert pages(store, "auto_vacuum") == 2
        assert await completed_runs(store) == ["a"]
        await store.end_run(response(1, "s"))
    assert inspect_database(path).can_shrink


async def test_a_large_file_of_an_earlier_version_is_left_as_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_CONVERTED_BYTES", 1)
    create_before_vacuum(path)
    async with open_sqlite(path) as store:
        assert pages(store, "auto_vacuum") == 0
        assert await completed_runs(store) == ["a"]
        for number in range(5):
            await store.end_run(response(number, f"{number}"))
        limits = attrs.evolve(KEEP_ALL, max_bytes=1)
        assert await store.purge(limits, 1.0) == PurgeResult(runs=6)
        assert pages(store, "freelist_count") > KEPT_FREE_PAGES
    assert not inspect_database(path).can_shrink


def create_before_vacuum(path: Path) -> None:
    """Create a database as the first version did, with one run."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, MIGRATIONS[:8])
        connection.execute(
            "INSERT INTO sessions (principal, session_id, created_at, updated_at) VALUES ('ann', 's', 1.0, 1.5)"
        )
        for n, body in enumerate(
            ('{"role":"user","content":"ask a"}', '{"role":"assistant","content":"answer a"}')
        ):
            connection.execute(
                "INSERT INTO messages (principal, session_id, n, run_id, body) VALUES ('ann', 's', ?, 'a', ?)",
                (n, body),
            )
        connection.execute(
            "INSERT INTO runs (principal, run_id, kind, session_id, parent, conversation, model, status, reason,"
            " created_at, ended_after, owner, accessed_at, header) VALUES"
            " ('ann', 'a', 'responses', 's', '', '', 'm', 'completed', '', 1.0, 0.5, '', 1.5, x'')"
        )
