"""Faults of disk and file.

Every caller gets an error, nothing acknowledged is lost, and the store recovers.
"""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.messages import Message
from hermes_trio.core.records import EndedRun, NoRun
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.sqlite import SqliteOptions, SqliteStore, open_sqlite
from tests.stores.helpers import (
    block_writer,
    completed_runs,
    contents,
    overwrite,
    writer_connection,
)
from tests.stores.samples import ended, ended_with_messages

IMPATIENT = SqliteOptions(busy_seconds=0.05)
NO_LIMIT = 2**30
BIG = "x" * 300_000

Fault = Callable[[SqliteStore, Path], AbstractContextManager[None]]


def allow_pages(store: SqliteStore, more: int) -> None:
    """Let the database grow by some pages and no further."""
    [pages] = writer_connection(store).execute("PRAGMA page_count").fetchone()
    writer_connection(store).execute(f"PRAGMA max_page_count = {pages + more}")


@contextmanager
def full(store: SqliteStore, path: Path) -> Iterator[None]:
    """Leave no room for another page."""
    allow_pages(store, 0)
    yield
    allow_pages(store, NO_LIMIT)


@contextmanager
def read_only(store: SqliteStore, path: Path) -> Iterator[None]:
    """Make the writer read-only."""
    writer_connection(store).execute("PRAGMA query_only = ON")
    yield
    writer_connection(store).execute("PRAGMA query_only = OFF")


@contextmanager
def locked(store: SqliteStore, path: Path) -> Iterator[None]:
    """Lock the database from another program that ignores the lock file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def broken_disk(store: SqliteStore, path: Path) -> Iterator[None]:
    """Let the system refuse writes beyond the current size, which SQLite reports as an I/O error."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = path.with_name(path.name + "-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def big(run_id: str) -> EndedRun:
    """Return a run that needs new pages."""
    return ended_with_messages(run_id, Message("user", BIG))


async def expect(store: SqliteStore, run: EndedRun, text: str) -> None:
    """Expect that ending a run fails with a message."""
    with pytest.raises(StoreError, match=text) as caught:
        await store.end_run(run)
    assert "\n" not in str(caught.value)


FAULTS: list[tuple[Fault, str]] = [
    (full, "disk is full"),
    (read_only, "cannot be written to"),
    (locked, "the database is locked by another program"),
    (broken_disk, "input/output error"),
]


@pytest.mark.parametrize(("fault", "text"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
async def test_a_fault_reaches_every_caller_and_passes(path: Path, fault: Fault, text: str) -> None:
    async with open_sqlite(path, IMPATIENT) as store:
        await store.end_run(ended("before"))
        for _ in range(2):
            with fault(store, path):
                async with trio.open_nursery() as nursery:
                    for number in range(10):
                        nursery.start_soon(expect, store, big(f"big-{number}"), text)
                assert await completed_runs(store) == ["before"]
        await store.check()
        await store.end_run(ended("after"))
        await store.end_run(big("big-0"))
        assert len(await store.load_messages("ann", "s")) == 5
    async with open_sqlite(path) as store:
        assert len(await store.load_messages("ann", "s")) == 5


@pytest.mark.parametrize(
    ("fault", "text"), FAULTS[1:], ids=[fault.__name__ for fault, _ in FAULTS[1:]]
)
async def test_check_reports_a_fault(path: Path, fault: Fault, text: str) -> None:
    async with open_sqlite(path, IMPATIENT) as store:
        await store.check()
        with fault(store, path), pytest.raises(StoreError, match=text):
            await store.check()
        await store.check()


async def test_a_full_disk_is_noticed_until_there_is_room_again(path: Path) -> None:
    """What needs no new page succeeds in between."""
    async with open_sqlite(path) as store:
        await store.end_run(ended("a"))
        with full(store, path):
            await expect(store, big("big"), "disk is full")
            for _ in range(3):
                assert await store.find_run("ann", "a") != NoRun()
                await store.flush_access_times()
                for notice in (store.heartbeat, store.check):
                    with pytest.raises(StoreError, match="disk is full"):
                        await notice()
        await store.heartbeat()
        commits = store.commits
        await store.heartbeat()
        assert store.commits == commits
        tables = writer_connection(store).execute("SELECT name FROM sqlite_schema").fetchall()
        assert ("probe_space",) not in tables


@pytest.mark.parametrize("fault", [locked, broken_disk])
async def test_closing_during_a_fault_loses_nothing(path: Path, fault: Fault) -> None:
    with ExitStack() as beyond:
        async with open_sqlite(path, IMPATIENT) as store:
            await store.end_run(ended("a"))
            beyond.enter_context(fault(store, path))
    async with open_sqlite(path) as store:
        assert await completed_runs(store) == ["a"]


async def test_one_large_run_does_not_fail_those_that_fit(path: Path) -> None:
    async with open_sqlite(path) as store:
        await store.end_run(ended("a"))
        allow_pages(store, 20)
        async with trio.open_nursery() as nursery:
            gate = await block_writer(store, nursery)
            nursery.start_soon(store.end_run, ended("b"))
            nursery.start_soon(expect, store, big("big"), "disk is full")
            nursery.start_soon(store.end_run, ended("c"))
            await wait_all_tasks_blocked()
            gate.open()
        assert sorted(await completed_runs(store)) == ["a", "b", "c"]


@pytest.mark.parametrize("body", ["'{'", "x'ff'", "7", "CAST(x'ff' AS TEXT)"])
async def test_a_damaged_row_is_named(path: Path, body: str) -> None:
    async with open_sqlite(path) as store:
        await store.end_run(ended("a"))
        await store.end_run(ended("b", session_id="other"))
        writer_connection(store).execute(
            f"UPDATE messages SET body = {body} WHERE session_id = 's' AND n = 1"
        )
        with pytest.raises(StoreError, match="message 1 of session 's' is damaged"):
            await store.load_messages("ann", "s")
        assert await completed_runs(store, "other") == ["b"]
        await store.check()


def without_tables(path: Path, whole: bytes) -> bytes:
    """A database whose schema can be read, and nothing else."""
    with closing(sqlite3.connect(path)) as connection:
        [size] = connection.execute("PRAGMA page_size").fetchone()
        roots = [
            root for [root] in connection.execute("SELECT rootpage FROM sqlite_schema").fetchall()
        ]
    pages = [whole[start : start + size] for start in range(0, len(whole), size)]
    return b"".join(
        b"\xff" * size if number in roots else page for number, page in enumerate(pages, 1)
    )


async def test_a_damaged_file_is_an_error(path: Path) -> None:
    async with open_sqlite(path) as store:
        await store.end_run(ended("a"))
    whole = contents(path)
    overwrite(path, without_tables(path, whole))
    async with open_sqlite(path) as store:
        for call in (
            store.check,
            lambda: store.load_messages("ann", "s"),
            lambda: store.end_run(ended("b")),
        ):
            with pytest.raises(StoreError, match="the database file is damaged"):
                await call()
    overwrite(path, whole)
    async with open_sqlite(path) as store:
        assert await completed_runs(store) == ["a"]


async def test_a_file_locked_by_another_program_is_not_opened(path: Path) -> None:
    async with open_sqlite(path) as store:
        await store.end_run(ended("a"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="the database is locked by another program"):
            async with open_sqlite(path, IMPATIENT):
                pass
    async with open_sqlite(path) as store:
        assert await completed_runs(store) == ["a"]
