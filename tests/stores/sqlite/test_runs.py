"""Runs in the file: atomic transactions, damaged rows, few writes, and no full table scans."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.records import LiveRun, NoConversation, NoRun, Ownership, PurgeResult
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.sql import conversations, jobs, owners, purge, retention
from hermes_trio.stores.sql import runs as run_queries
from hermes_trio.stores.sqlite import SqliteOptions, SqliteStore, open_sqlite
from tests.stores.contract.isolation import DONE, assert_intact, populate
from tests.stores.helpers import block_writer, completed_runs, count_commits, writer_connection
from tests.stores.samples import (
    KEEP_ALL,
    batch,
    begin_and_log,
    ended,
    header,
    history_texts,
    idempotency_record,
    item,
    logged_numbers,
    texts_of,
)


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """An open store in a file."""
    async with open_sqlite(path) as opened:
        yield opened


def edit(store: SqliteStore, statement: str) -> int:
    """Change rows behind the back of the store and return their number."""
    return writer_connection(store).execute(statement).rowcount


TABLES = ("sessions", "messages", "log", "conversations", "conversation_items", "item_index")


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("has_begun", [True, False])
async def test_ending_a_run_is_atomic(store: SqliteStore, table: str, has_begun: bool) -> None:
    if has_begun:
        await begin_and_log(store, "a", 1)
    before = [*writer_connection(store).iterdump()]
    edit(
        store,
        f"CREATE TEMP TRIGGER no BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'no'); END",
    )
    end = (ended("a", conversation="c"), [batch("a", 1)], [item("i")])
    with pytest.raises(StoreError, match="no"):
        await store.end_run(*end)
    edit(store, "DROP TRIGGER no")
    assert [*writer_connection(store).iterdump()] == before
    await store.end_run(*end)
    assert await store.find_run("ann", "a") == end[0]
    assert await logged_numbers(store, "a") == ([0, 1] if has_begun else [1])


async def test_a_bad_batch_fails_its_own_call_only(store: SqliteStore) -> None:
    await begin_and_log(store, "a", 1)
    nothing: Any = None
    broken = attrs.evolve(batch("a", 2), count=nothing)
    async with trio.open_nursery() as nursery:
        gate = await block_writer(store, nursery)
        nursery.start_soon(_refused, store, [batch("a", 1), broken])
        nursery.start_soon(store.append_log, [batch("a", 3)])
        await wait_all_tasks_blocked()
        gate.open()
    assert await logged_numbers(store, "a") == [0, 3]


async def _refused(store: SqliteStore, batches: list[Any]) -> None:
    with pytest.raises(StoreError, match="NOTNULL"):
        await store.append_log(batches)


async def test_everything_pending_is_one_commit(store: SqliteStore) -> None:
    counted = count_commits(store)
    async with trio.open_nursery() as nursery:
        gate = await block_writer(store, nursery)
        for number in range(20):
            nursery.start_soon(store.begin_run, header(f"{number}"), Ownership("me"))
            nursery.start_soon(store.end_run, ended(f"x{number}"))
            nursery.start_soon(store.claim_key, idempotency_record(f"{number}"))
        await wait_all_tasks_blocked()
        gate.open()
    assert counted() == 2


Act = Callable[[SqliteStore], Awaitable[Any]]

DAMAGE: list[tuple[str, Act, str]] = [
    (
        "UPDATE runs SET header = {}",
        lambda store: store.find_run("ann", "done"),
        "the header of run 'done'",
    ),
    (
        "UPDATE runs SET header = {}",
        lambda store: store.find_run("ann", "live"),
        "the header of run 'live'",
    ),
    (
        "UPDATE runs SET header = {}",
        lambda store: store.load_history("ann", "live"),
        "the header of run 'live'",
    ),
    (
        "UPDATE runs SET items = {}",
        lambda store: store.find_run("ann", "done"),
        "the items of run 'done'",
    ),
    (
        "UPDATE runs SET outcome = {}",
        lambda store: store.find_run("ann", "done"),
        "the outcome of run 'done'",
    ),
    (
        "UPDATE log SET body = {}",
        lambda store: store.read_log("ann", "live", 0),
        "the log of run 'live' at 0",
    ),
    (
        "UPDATE messages SET body = {}",
        lambda store: store.load_history("ann", "done"),
        "message 0 of run 'done'",
    ),
    (
        "UPDATE messages SET body = {}",
        lambda store: store.load_messages("ann", "s"),
        "message 0 of session 's'",
    ),
    (
        "UPDATE conversation_items SET body = {}",
        lambda store: store.list_items("ann", "c"),
        "item 0 of conversation 'c'",
    ),
    (
        "UPDATE conversations SET metadata = {}",
        lambda store: store.find_conversation("ann", "c"),
        "the metadata of conversation 'c'",
    ),
]


@pytest.mark.parametrize(
    ("change", "act", "place"), DAMAGE, ids=[f"{row[0][7:-5]} {row[2]}" for row in DAMAGE]
)
async def test_damaged_rows_are_named(
    store: SqliteStore, change: str, act: Act, place: str
) -> None:
    await populate(store)
    for value in ("x''", "x'ff00'", "'text'", "'{'", "'[1]'", "CAST(x'ff' AS TEXT)"):
        assert edit(store, change.format(value)) > 0
        with pytest.raises(StoreError, match=f"^{place} is damaged: "):
            await act(store)
    await store.check()


@pytest.mark.parametrize("value", ["x''", "'text'"])
async def test_damaged_numbers_are_named(store: SqliteStore, value: str) -> None:
    await populate(store)
    edit(store, f"UPDATE log SET count = {value}")
    with pytest.raises(StoreError, match=r"^the log of run 'done' at 0 is damaged"):
        await store.read_log("ann", "done", 0)
    edit(store, f"UPDATE runs SET ended_after = {value}")
    with pytest.raises(StoreError, match=r"^the outcome of run 'done' is damaged"):
        await store.find_run("ann", "done")


async def test_a_caught_error_does_not_keep_the_file_open(path: Path) -> None:
    async with open_sqlite(path, SqliteOptions(busy_seconds=0.05)) as store:
        await begin_and_log(store, "a", 3)
        edit(store, "UPDATE log SET body = x'00' WHERE first = 1")
        with pytest.raises(StoreError) as caught:
            await store.read_log("ann", "a", 0)
        [[busy, *_]] = (
            writer_connection(store).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        )
        assert busy == 0
    assert caught.value.__traceback__ is not None


async def test_a_flipped_bit_is_noticed(store: SqliteStore) -> None:
    await populate(store)
    for column in ("header", "items"):
        [[body]] = (
            writer_connection(store)
            .execute(f"SELECT {column} FROM runs WHERE run_id = 'done'")
            .fetchall()
        )
        for at in range(len(body)):
            flipped = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
            writer_connection(store).execute(
                f"UPDATE runs SET {column} = ? WHERE run_id = 'done'", (flipped,)
            )
            with pytest.raises(StoreError, match="damaged"):
                await store.find_run("ann", "done")
        writer_connection(store).execute(
            f"UPDATE runs SET {column} = ? WHERE run_id = 'done'", (body,)
        )
    await assert_intact(store)


async def test_reading_writes_nothing_until_the_next_write(store: SqliteStore) -> None:
    await populate(store)
    counted = count_commits(store)
    for _ in range(50):
        assert await store.find_run("ann", "done") == DONE
    await store.find_run("ann", "none")
    assert counted() == 0
    assert used_at(store, "done") == 1.5
    await store.end_run(ended("next"))
    assert counted() == 1
    assert used_at(store, "done") > 1e9
    assert not store._access_times.drain()


def used_at(store: SqliteStore, run_id: str) -> float:
    """Return the access time of a run in the file."""
    query = "SELECT accessed_at FROM runs WHERE run_id = ?"
    return float(writer_connection(store).execute(query, (run_id,)).fetchone()[0])


async def test_a_purge_removes_a_bounded_amount(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "MAX_PURGED", 3)
    for number in range(7):
        await store.end_run(
            ended(f"{number}", float(number)), [batch(f"{number}", 0), batch(f"{number}", 1)]
        )
        await store.claim_key(idempotency_record(f"x{number}", key=f"{number}"))
    tight = attrs.evolve(KEEP_ALL, log_seconds=1.0, idempotency_seconds=1.0, max_runs=1)
    # A log counts by its batches: two logs are enough for one time. Runs that go take their logs
    # along.
    assert await store.purge(tight, 100.0) == PurgeResult(runs=3, logs=2, idempotency_records=3)
    assert await store.purge(tight, 100.0) == PurgeResult(runs=3, logs=2, idempotency_records=3)
    assert await store.purge(tight, 100.0) == PurgeResult(logs=1, idempotency_records=1)
    assert await store.purge(tight, 100.0) == PurgeResult()
    assert await completed_runs(store) == [*"0123456"]


async def test_a_deleted_chain_leaves_only_messages(store: SqliteStore) -> None:
    for number, run_id in enumerate("abcdef"):
        await store.end_run(
            ended(run_id, parent="" if not number else "abcdef"[number - 1]), [batch(run_id, 0)]
        )
    for run_id in "cabed":
        assert await store.delete_run("ann", run_id)
    assert count(store, "runs") == 6
    assert count(store, "log") == count(store, "item_index") == 1
    assert await history_texts(store, "f") == texts_of(*"abcdef")
    assert await store.delete_run("ann", "f")
    assert count(store, "runs") == count(store, "log") == count(store, "item_index") == 0
    assert await completed_runs(store) == [*"abcdef"]


def count(store: SqliteStore, table: str) -> int:
    """Return the rows of a table."""
    return int(writer_connection(store).execute(f"SELECT count(*) FROM {table}").fetchone()[0])


async def test_a_damaged_run_is_deleted_with_its_items(store: SqliteStore) -> None:
    await store.end_run(ended("a"))
    await store.end_run(ended("b"))
    edit(store, "UPDATE runs SET items = x'00' WHERE run_id = 'a'")
    assert await store.delete_run("ann", "a")
    assert count(store, "item_index") == 1
    assert await store.delete_run("ann", "b")
    assert count(store, "item_index") == 0


async def test_a_stub_has_no_content(store: SqliteStore) -> None:
    await store.end_run(ended("a"))
    await store.end_run(ended("b", parent="a"))
    await store.delete_run("ann", "a")
    query = (
        "SELECT hidden, size, length(header), length(items), outcome FROM runs WHERE run_id = 'a'"
    )
    assert writer_connection(store).execute(query).fetchone() == (1, 0, 0, 0, "")


NAMES = {
    "principal": "p",
    "run_id": "r",
    "first": 0,
    "limit": 1,
    "conversation_id": "c",
    "after": "x",
}
STATEMENTS: list[tuple[str, Any]] = [
    (run_queries._CHAIN, NAMES),
    (run_queries.READ_LOG, NAMES),
    (conversations._OLDEST_FIRST, NAMES),
    (conversations._NEWEST_FIRST, NAMES),
    (retention._REMOVE_STUB, ("p", "r")),
    (retention._USE_SESSION, {**NAMES, "at": 1.0}),
    (purge._EXPIRED_LOGS, (1.0, 1)),
    (purge._EXPIRED_KEYS, (1.0, 1)),
    *((statement, ()) for statement in purge._USAGES),
    (purge._LEAST_USED_FIRST, {**NAMES, "bytes": True}),
    (purge._LEAST_USED_FIRST, {**NAMES, "bytes": False}),
    (purge._RUNS_OF_SESSION, ("p", "s", 1)),
    (purge._HAS_RUNS, {**NAMES, "name": "s"}),
    (purge._HAS_CONVERSATION_RUNS, ("p", "c")),
    (purge._REMOVE_FIRST_STUB, ("p", "r")),
    (owners.FIND_ABANDONED, {"node": "me", "limit": 1}),
    (owners._FIND.format(keys="(?, ?), (?, ?)"), ("p", "r", "p", "r")),
    ("DELETE FROM claims WHERE principal = ? AND run_id = ?", ("p", "r")),
    ("DELETE FROM item_index WHERE principal = ? AND item_id = ? AND run_id = ?", ("p", "i", "r")),
    (run_queries._FIND_ITEMS, ("p", "[]")),
    (conversations._FIND_ITEMS, ("p", "[]")),
    (jobs.LIST_DUE, (1.0, 1, 0)),
    (jobs.NEXT_DUE, ()),
]


async def test_no_statement_searches_a_whole_table(store: SqliteStore) -> None:
    tables = (
        "runs",
        "log",
        "messages",
        "conversation_items",
        "claims",
        "later",
        "item_index",
        "jobs",
    )
    for statement, values in STATEMENTS:
        plan = plan_of(writer_connection(store), statement, values)
        assert not {f"SCAN {table}" for table in tables}.intersection(plan), statement
        sorts = [line for line in plan if "TEMP B-TREE" in line]
        # These sort what they found: messages, and runs of all principals.
        assert not sorts or statement in {run_queries._CHAIN, owners.FIND_ABANDONED}


def plan_of(connection: sqlite3.Connection, statement: str, values: Any) -> list[str]:
    """Return the query plan."""
    return [
        row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    ]


async def test_no_trace_of_what_was_refused(store: SqliteStore) -> None:
    await store.begin_run(header("a"), Ownership("me"))
    with pytest.raises(StoreError, match="JSON"):
        await store.end_run(ended("a", conversation="c", request={"x": b""}))
    assert await store.find_run("ann", "a") == LiveRun(header("a"))
    assert await store.find_run("ann", "b") == NoRun()
    assert await store.find_conversation("ann", "c") == NoConversation()
