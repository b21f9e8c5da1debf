"""Group commit, cancellation of those who wait, and closing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.stores.base import StoreError
from hermes_trio.stores.sqlite import SqliteOptions, SqliteStore, open_sqlite
from hermes_trio.stores.sqlite import runs as run_queries
from hermes_trio.stores.sqlite.connections import ReaderPool
from hermes_trio.stores.sqlite.store import _unwrap_group
from hermes_trio.stores.sqlite.writer import Job, Writer
from tests.stores.helpers import Gate, count_commits, end_all, hold, runs_of, writer_of
from tests.stores.samples import ended, many

NAN = float("nan")  # SQLite has no such number: the row breaks NOT NULL


async def save_and_note(
    store: SqliteStore, run_id: str, noted: dict[str, str], created_at: float = 1.0
) -> None:
    """End a run and note how it went."""
    try:
        await store.end_run(ended(run_id, created_at))
    except StoreError as error:
        noted[run_id] = str(error)
    else:
        noted[run_id] = "saved"


@pytest.mark.parametrize(("batch", "commits"), [(256, 2), (10, 11)])
async def test_all_that_waits_is_one_transaction(path: Path, batch: int, commits: int) -> None:
    async with open_sqlite(path, SqliteOptions(max_batch=batch)) as store:
        counted = count_commits(store)
        async with trio.open_nursery() as nursery:
            gate = await hold(store, nursery)
            nursery.start_soon(end_all, store, many(100))
            await wait_all_tasks_blocked()
            gate.open()
        assert counted() == commits
        assert len(await runs_of(store)) == 100


async def test_a_crowd_makes_few_commits_by_itself(path: Path) -> None:
    async with open_sqlite(path) as store:
        counted = count_commits(store)
        await end_all(store, many(200))
        assert counted() <= 5


async def test_whoever_waits_for_company_is_told_when_the_writer_is_abandoned() -> None:
    """At every step of the loop: a job that is neither queued nor with the engine is not forgotten."""
    for steps in range(1, 6):
        with closing(
            sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        ) as connection:
            assert await outcome_of_abandoned(Writer(connection, 9, 9), steps) in ("done", "cut off")


async def outcome_of_abandoned(writer: Writer, steps: int) -> str:
    """What the third caller hears, after two that came together, when the writer is abandoned so many steps later."""
    heard = ""

    async def ask() -> None:
        nonlocal heard
        try:
            await writer.submit(lambda _: None)
            heard = "done"
        except StoreError:
            heard = "cut off"

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            async with trio.open_nursery() as company:
                company.start_soon(ask)
                company.start_soon(ask)
            nursery.start_soon(ask)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            writer.abandon()
        async with writer._limiter:  # its thread is through with the connection, which is closed next
            return heard


async def test_a_lone_caller_waits_for_nobody(path: Path) -> None:
    async with open_sqlite(path) as store:
        counted = count_commits(store)
        for run in many(5):
            await store.end_run(run)
        assert counted() == 5


async def test_a_bad_job_fails_alone(path: Path) -> None:
    noted: dict[str, str] = {}
    async with open_sqlite(path) as store:
        counted = count_commits(store)
        async with trio.open_nursery() as nursery:
            gate = await hold(store, nursery)
            nursery.start_soon(save_and_note, store, "a", noted)
            nursery.start_soon(save_and_note, store, "bad", noted, NAN)
            nursery.start_soon(save_and_note, store, "b", noted)
            await wait_all_tasks_blocked()
            gate.open()
        assert counted() == 2
        assert noted.pop("bad").startswith("sqlite store: the operation failed (SQLITE_CONSTRAINT_NOTNULL")
        assert noted == {"a": "saved", "b": "saved"}
        assert sorted(await runs_of(store)) == ["a", "b"]


def broken(connection: sqlite3.Connection) -> None:
    """A job that fails after it has done its work."""
    run_queries.end(connection, ended("half"), (), ())
    raise LookupError("bug")


async def test_a_bug_in_a_job_is_its_callers_and_leaves_no_trace(path: Path) -> None:
    async with open_sqlite(path) as store:
        with pytest.raises(StoreError, match="LookupError: bug") as caught:
            await store._writer.submit(broken)
        assert isinstance(caught.value.__cause__, LookupError)
        await store.end_run(ended("a"))
        assert await runs_of(store) == ["a"]


def orphan(connection: sqlite3.Connection) -> None:
    """A job that seems to go well and makes the commit fail."""
    connection.execute("PRAGMA defer_foreign_keys = ON")
    connection.execute(
        "INSERT INTO messages (principal, session_id, n, run_id, body) VALUES ('ann', 'no such session', 0, 'no such run', '{}')"
    )


async def test_a_commit_that_fails_is_undone_and_told_to_all(path: Path) -> None:
    noted: dict[str, str] = {}
    async with open_sqlite(path) as store:
        async with trio.open_nursery() as nursery:
            gate = await hold(store, nursery)
            nursery.start_soon(save_and_note, store, "a", noted)
            nursery.start_soon(_expect, store, orphan, "SQLITE_CONSTRAINT")
            await wait_all_tasks_blocked()
            gate.open()
        assert "SQLITE_CONSTRAINT" in noted["a"]
        await store.end_run(ended("b"))
        assert await runs_of(store) == ["b"]


async def test_a_full_queue_holds_callers_back_and_loses_none(path: Path) -> None:
    async with open_sqlite(path, SqliteOptions(max_pending=2)) as store:
        async with trio.open_nursery() as nursery:
            gate = await hold(store, nursery)
            nursery.start_soon(end_all, store, many(10))
            await wait_all_tasks_blocked()
            assert store._writer._send.statistics().tasks_waiting_send == 8
            gate.open()
        assert len(await runs_of(store)) == 10


async def test_cancelled_before_it_was_accepted(path: Path) -> None:
    async with open_sqlite(path, SqliteOptions(max_pending=0)) as store:
        async with trio.open_nursery() as nursery:
            gate = await hold(store, nursery)
            async with trio.open_nursery() as callers:
                callers.start_soon(store.end_run, ended("a"))
                await wait_all_tasks_blocked()
                callers.cancel_scope.cancel()
            gate.open()
        await store.end_run(ended("b"))
        assert await runs_of(store) == ["b"]


async def test_cancelled_in_the_queue_is_saved_all_the_same(path: Path) -> None:
    async with open_sqlite(path) as store:
        async with trio.open_nursery() as nursery:
            gate = await hold(store, nursery)
            async with trio.open_nursery() as callers:
                callers.start_soon(store.end_run, ended("a"))
                await wait_all_tasks_blocked()
                callers.cancel_scope.cancel()
            gate.open()
        await store.end_run(ended("b"))
        assert await runs_of(store) == ["a", "b"]


@pytest.mark.parametrize("moment", ["BEGIN", "INSERT", "COMMIT"])
async def test_cancelled_while_the_engine_is_at_it_is_saved_all_the_same(path: Path, moment: str) -> None:
    loop = trio.lowlevel.current_trio_token()
    async with open_sqlite(path) as store:
        with trio.CancelScope() as scope:
            # Queued before the thread can report its end, so it comes first, even at the commit.
            writer_of(store).set_trace_callback(
                lambda statement: loop.run_sync_soon(scope.cancel) if statement.startswith(moment) else None
            )
            await store.end_run(ended("cut"))
        assert scope.cancelled_caught
        await store.end_run(ended("next"))
        assert await runs_of(store) == ["cut", "next"]


async def test_closing_commits_what_was_accepted(path: Path) -> None:
    noted: dict[str, str] = {}
    with trio.fail_after(10):
        async with trio.open_nursery() as outside:
            with trio.CancelScope() as owner:
                async with open_sqlite(path, SqliteOptions(max_pending=2)) as store:
                    await _close_while_four_wait(store, outside, noted, owner)
            assert owner.cancelled_caught
    assert noted == {"a": "saved", "b": "saved", "c": "the store is closed", "d": "the store is closed"}
    async with open_sqlite(path) as store:
        assert await runs_of(store) == ["a", "b"]


async def _close_while_four_wait(
    store: SqliteStore, outside: trio.Nursery, noted: dict[str, str], owner: trio.CancelScope
) -> None:
    gate = await hold(store, outside)
    for run_id in "abcd":
        outside.start_soon(save_and_note, store, run_id, noted)
        await wait_all_tasks_blocked()
    outside.start_soon(_open_when_closing, gate, owner)
    await trio.sleep_forever()


async def _open_when_closing(gate: Gate, owner: trio.CancelScope) -> None:
    owner.cancel()
    await wait_all_tasks_blocked()
    gate.open()


async def test_closing_does_not_wait_for_ever(path: Path) -> None:
    noted: dict[str, str] = {}
    gate = Gate()
    with trio.fail_after(10):
        async with trio.open_nursery() as outside:
            store = await _closed_too_soon(path, outside, gate, noted)
            gate.open()
            await store._writer._limiter.acquire_on_behalf_of("the thread has ended")
    assert "may or may not have been saved" in noted["waiting"]
    _close_what_was_left(store)


async def _closed_too_soon(
    path: Path, outside: trio.Nursery, gate: Gate, noted: dict[str, str]
) -> SqliteStore:
    opened = open_sqlite(path, SqliteOptions(close_seconds=0.05))
    store = await opened.__aenter__()
    outside.start_soon(_expect, store, gate, "may or may not have been saved")
    await gate.entered.wait()
    outside.start_soon(save_and_note, store, "waiting", noted)
    await wait_all_tasks_blocked()
    with pytest.raises(StoreError, match=r"did not close within 0\.05 s"):
        await opened.__aexit__(None, None, None)
    return store


async def _expect(store: SqliteStore, job: Job, text: str) -> None:
    with pytest.raises(StoreError, match=text):
        await store._writer.submit(job)


def _close_what_was_left(store: SqliteStore) -> None:
    for connection in (writer_of(store), *store._readers._idle):
        connection.close()


def test_two_errors_at_once_stay_together() -> None:
    with pytest.RaisesGroup(KeyError, ValueError), _unwrap_group():
        raise ExceptionGroup("from the nursery", [KeyError(), ValueError()])


async def test_more_readers_than_connections(path: Path) -> None:
    async with open_sqlite(path, SqliteOptions(readers=2)) as store:
        await store.end_run(ended("a"))
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(runs_of, store)


async def test_a_cancelled_reader_goes_at_once_and_closing_waits_for_its_thread() -> None:
    gate, closed = Gate(), trio.Event()
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection, trio.fail_after(10):
        readers = ReaderPool([connection])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(readers.read, gate)
            await gate.entered.wait()
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_close_and_tell, readers, closed)
            await wait_all_tasks_blocked()
            assert not closed.is_set()
            gate.open()
        assert list(readers._idle) == [connection]


async def _close_and_tell(readers: ReaderPool, closed: trio.Event) -> None:
    await readers.close()
    closed.set()
