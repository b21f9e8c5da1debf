"""Group commit, cancellation of waiting callers, and closing."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.stores.base import StoreError
from hermes_trio.stores.sql import runs as run_queries
from hermes_trio.stores.sql.database import Job, ReaderPool, SqlConnection
from hermes_trio.stores.sql.store import _unwrap_group
from hermes_trio.stores.sql.writer import Writer
from hermes_trio.stores.sqlite import SqliteOptions, SqliteStore, open_sqlite
from hermes_trio.stores.sqlite.connections import SqliteDatabase
from tests.stores.helpers import (
    BlockingJob,
    block_writer,
    completed_runs,
    count_commits,
    end_all,
    writer_connection,
)
from tests.stores.samples import ended, many

NAN = float("nan")  # SQLite has no such number: the row breaks NOT NULL


async def save_and_record(
    store: SqliteStore, run_id: str, noted: dict[str, str], created_at: float = 1.0
) -> None:
    """End a run and record the result."""
    try:
        await store.end_run(ended(run_id, created_at))
    except StoreError as error:
        noted[run_id] = str(error)
    else:
        noted[run_id] = "saved"


@pytest.mark.parametrize(("batch", "commits"), [(256, 2), (10, 11)])
async def test_everything_pending_is_one_transaction(path: Path, batch: int, commits: int) -> None:
    async with open_sqlite(path, SqliteOptions(max_batch=batch)) as store:
        counted = count_commits(store)
        async with trio.open_nursery() as nursery:
            gate = await block_writer(store, nursery)
            nursery.start_soon(end_all, store, many(100))
            await wait_all_tasks_blocked()
            gate.open()
        assert counted() == commits
        assert len(await completed_runs(store)) == 100


async def test_concurrent_callers_share_commits(path: Path) -> None:
    async with open_sqlite(path) as store:
        counted = count_commits(store)
        await end_all(store, many(200))
        assert counted() <= 5


async def test_a_gathering_job_gets_an_error_when_the_writer_is_abandoned(path: Path) -> None:
    """At every step of the loop: a job that is neither queued nor in a transaction is not lost."""
    async with open_sqlite(path):
        pass
    with path.open("rb") as file:
        await check_every_step(path, file.fileno())


async def check_every_step(path: Path, descriptor: int) -> None:
    for steps in range(1, 6):
        with closing(
            sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        ) as connection:
            database = SqliteDatabase(path, descriptor, connection, [], ExitStack())
            assert await outcome_of_abandoned(Writer(database, 9, 9), steps) in (
                "done",
                "cut off",
            )


async def outcome_of_abandoned(writer: Writer, steps: int) -> str:
    """Return the result of a third caller, after two concurrent ones, when the writer is abandoned after some steps."""
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
        async with (
            writer._limiter
        ):  # its thread is through with the connection, which is closed next
            return heard


async def test_a_single_caller_does_not_wait_for_others(path: Path) -> None:
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
            gate = await block_writer(store, nursery)
            nursery.start_soon(save_and_record, store, "a", noted)
            nursery.start_soon(save_and_record, store, "bad", noted, NAN)
            nursery.start_soon(save_and_record, store, "b", noted)
            await wait_all_tasks_blocked()
            gate.open()
        assert counted() == 2
        assert noted.pop("bad").startswith(
            "sqlite store: the operation failed (SQLITE_CONSTRAINT_NOTNULL"
        )
        assert noted == {"a": "saved", "b": "saved"}
        assert sorted(await completed_runs(store)) == ["a", "b"]


def broken(connection: SqlConnection) -> None:
    """A job that fails after it has done its work."""
    run_queries.EndJob(ended("half"))(connection)
    raise LookupError("bug")


async def test_a_bug_in_a_job_reaches_its_caller_and_changes_nothing(path: Path) -> None:
    async with open_sqlite(path) as store:
        with pytest.raises(StoreError, match="LookupError: bug") as caught:
            await store._writer.submit(broken)
        assert isinstance(caught.value.__cause__, LookupError)
        await store.end_run(ended("a"))
        assert await completed_runs(store) == ["a"]


def orphan(connection: SqlConnection) -> None:
    """A job that succeeds, but makes the commit fail."""
    connection.execute("PRAGMA defer_foreign_keys = ON")
    connection.execute(
        "INSERT INTO messages (principal, session_id, n, run_id, body) VALUES ('ann', 'no such session', 0, 'no such run', '{}')"
    )


async def test_a_failed_commit_is_rolled_back_and_reported_to_all(path: Path) -> None:
    noted: dict[str, str] = {}
    async with open_sqlite(path) as store:
        async with trio.open_nursery() as nursery:
            gate = await block_writer(store, nursery)
            nursery.start_soon(save_and_record, store, "a", noted)
            nursery.start_soon(_expect, store, orphan, "SQLITE_CONSTRAINT")
            await wait_all_tasks_blocked()
            gate.open()
        assert "SQLITE_CONSTRAINT" in noted["a"]
        await store.end_run(ended("b"))
        assert await completed_runs(store) == ["b"]


async def test_a_full_queue_blocks_callers_and_loses_no_job(path: Path) -> None:
    async with open_sqlite(path, SqliteOptions(max_pending=2)) as store:
        async with trio.open_nursery() as nursery:
            gate = await block_writer(store, nursery)
            nursery.start_soon(end_all, store, many(10))
            await wait_all_tasks_blocked()
            assert store._writer._send.statistics().tasks_waiting_send == 8
            gate.open()
        assert len(await completed_runs(store)) == 10


async def test_cancelled_before_it_was_accepted(path: Path) -> None:
    async with open_sqlite(path, SqliteOptions(max_pending=0)) as store:
        async with trio.open_nursery() as nursery:
            gate = await block_writer(store, nursery)
            async with trio.open_nursery() as callers:
                callers.start_soon(store.end_run, ended("a"))
                await wait_all_tasks_blocked()
                callers.cancel_scope.cancel()
            gate.open()
        await store.end_run(ended("b"))
        assert await completed_runs(store) == ["b"]


async def test_cancelled_in_the_queue_is_saved_nevertheless(path: Path) -> None:
    async with open_sqlite(path) as store:
        async with trio.open_nursery() as nursery:
            gate = await block_writer(store, nursery)
            async with trio.open_nursery() as callers:
                callers.start_soon(store.end_run, ended("a"))
                await wait_all_tasks_blocked()
                callers.cancel_scope.cancel()
            gate.open()
        await store.end_run(ended("b"))
        assert await completed_runs(store) == ["a", "b"]


@pytest.mark.parametrize("moment", ["BEGIN", "INSERT", "COMMIT"])
async def test_cancelled_during_the_transaction_is_saved_nevertheless(
    path: Path, moment: str
) -> None:
    loop = trio.lowlevel.current_trio_token()
    async with open_sqlite(path) as store:
        with trio.CancelScope() as scope:
            # Queued before the thread can report its end, so it comes first, even at the commit.
            writer_connection(store).set_trace_callback(
                lambda statement: (
                    loop.run_sync_soon(scope.cancel)
                    if statement.lstrip().startswith(moment)
                    else None
                )
            )
            await store.end_run(ended("cut"))
        assert scope.cancelled_caught
        await store.end_run(ended("next"))
        assert await completed_runs(store) == ["cut", "next"]


async def test_closing_commits_what_was_accepted(path: Path) -> None:
    noted: dict[str, str] = {}
    with trio.fail_after(10):
        async with trio.open_nursery() as outside:
            with trio.CancelScope() as owner:
                async with open_sqlite(path, SqliteOptions(max_pending=2)) as store:
                    await _close_while_four_wait(store, outside, noted, owner)
            assert owner.cancelled_caught
    assert noted == {
        "a": "saved",
        "b": "saved",
        "c": "the store is closed",
        "d": "the store is closed",
    }
    async with open_sqlite(path) as store:
        assert await completed_runs(store) == ["a", "b"]


async def _close_while_four_wait(
    store: SqliteStore, outside: trio.Nursery, noted: dict[str, str], owner: trio.CancelScope
) -> None:
    gate = await block_writer(store, outside)
    for run_id in "abcd":
        outside.start_soon(save_and_record, store, run_id, noted)
        await wait_all_tasks_blocked()
    outside.start_soon(_open_when_closing, gate, owner)
    await trio.sleep_forever()


async def _open_when_closing(gate: BlockingJob, owner: trio.CancelScope) -> None:
    owner.cancel()
    await wait_all_tasks_blocked()
    gate.open()


async def test_closing_has_a_time_limit(path: Path) -> None:
    noted: dict[str, str] = {}
    gate = BlockingJob()
    with trio.fail_after(10):
        async with trio.open_nursery() as outside:
            store = await _closed_too_soon(path, outside, gate, noted)
            gate.open()
            await store._writer._limiter.acquire_on_behalf_of("the thread has ended")
    assert "may or may not have been saved" in noted["waiting"]
    _close_what_was_left(store)


async def _closed_too_soon(
    path: Path, outside: trio.Nursery, gate: BlockingJob, noted: dict[str, str]
) -> SqliteStore:
    opened = open_sqlite(path, SqliteOptions(close_seconds=0.05))
    store = await opened.__aenter__()
    outside.start_soon(_expect, store, gate, "may or may not have been saved")
    await gate.entered.wait()
    outside.start_soon(save_and_record, store, "waiting", noted)
    await wait_all_tasks_blocked()
    with pytest.raises(StoreError, match=r"did not close within 0\.05 s"):
        await opened.__aexit__(None, None, None)
    return store


async def _expect(store: SqliteStore, job: Job, text: str) -> None:
    with pytest.raises(StoreError, match=text):
        await store._writer.submit(job)


def _close_what_was_left(store: SqliteStore) -> None:
    for connection in (writer_connection(store), *store._database._idle):
        connection.close()


def test_two_errors_at_once_stay_together() -> None:
    with pytest.RaisesGroup(KeyError, ValueError), _unwrap_group():
        raise ExceptionGroup("from the nursery", [KeyError(), ValueError()])


async def test_more_readers_than_connections(path: Path) -> None:
    async with open_sqlite(path, SqliteOptions(readers=2)) as store:
        await store.end_run(ended("a"))
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(completed_runs, store)


async def test_a_cancelled_read_returns_at_once_and_closing_waits_for_its_thread() -> None:
    gate, closed = BlockingJob(), trio.Event()
    with (
        closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection,
        trio.fail_after(10),
    ):
        database = SqliteDatabase(Path("in memory"), -1, connection, [connection], ExitStack())
        readers = ReaderPool(database, 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(readers.read, gate)
            await gate.entered.wait()
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_close_and_tell, readers, closed)
            await wait_all_tasks_blocked()
            assert not closed.is_set()
            gate.open()
        assert list(database._idle) == [connection]


async def _close_and_tell(readers: ReaderPool, closed: trio.Event) -> None:
    await readers.close()
    closed.set()
