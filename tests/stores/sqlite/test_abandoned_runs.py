"""Abandoned runs, some of which cannot be decoded: those are given up, the others are not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import structlog

from hermes_trio.core.records import LiveRun, NoRun, Ownership, PurgeResult
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.sqlite import SqliteStore, open_sqlite
from tests.stores.helpers import completed_runs, writer_connection
from tests.stores.samples import (
    KEEP_ALL,
    begin_and_log,
    ended,
    header,
    history_texts,
    idempotency_record,
    logged_numbers,
    taken_headers,
    texts_of,
)


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """Three runs in progress."""
    async with open_sqlite(path) as opened:
        for run_id in "abc":
            await begin_and_log(opened, run_id)
        yield opened


def damage(store: SqliteStore, run_id: str, value: str = "x'ff00'") -> None:
    """Damage the header of a run behind the back of the store."""
    edited = writer_connection(store).execute(
        f"UPDATE runs SET header = {value} WHERE run_id = ?", (run_id,)
    )
    assert edited.rowcount == 1


def row_of(store: SqliteStore, run_id: str) -> Any:
    """Return the row of a run from the file."""
    query = "SELECT hidden, status, reason, owner, header FROM runs WHERE run_id = ?"
    return writer_connection(store).execute(query, (run_id,)).fetchone()


@pytest.mark.parametrize(
    "value", ["x''", "x'ff00'", "'text'", "'{'", "'[1]'", "7", "CAST(x'ff' AS TEXT)"]
)
async def test_a_damaged_run_does_not_block_the_others(store: SqliteStore, value: str) -> None:
    damage(store, "b", value)
    with structlog.testing.capture_logs() as lines:
        assert await taken_headers(store, "next") == [header("a"), header("c")]
        assert await taken_headers(store, "next") == [header("a"), header("c")]
    [line] = lines
    assert line["log_level"] == "error"
    assert line["error"].startswith("the header of run 'b' is damaged: ")
    assert await store.find_run("ann", "b") == NoRun()
    for run_id in "ac":
        assert await store.find_run("ann", run_id) == LiveRun(header(run_id))
        assert await logged_numbers(store, run_id) == [0, 1]


async def test_nothing_is_left_when_none_can_be_read(store: SqliteStore) -> None:
    for run_id in "abc":
        damage(store, run_id)
    with structlog.testing.capture_logs() as lines:
        assert await store.take_over_runs("next") == ()
    assert len(lines) == 3


async def test_a_run_of_a_living_owner_is_not_given_up(store: SqliteStore) -> None:
    damage(store, "b")
    assert await store.take_over_runs("me") == ()
    assert row_of(store, "b") == (0, "in_progress", "", "me", b"\xff\x00")


async def test_the_same_ids_of_another_principal_are_not_touched(store: SqliteStore) -> None:
    damage(store, "b")
    theirs = header("b", principal="bob")
    await store.begin_run(theirs, Ownership("me"))
    assert theirs in await taken_headers(store, "next")
    assert await store.find_run("bob", "b") == LiveRun(theirs)


async def test_a_run_that_was_given_up_looks_deleted(store: SqliteStore) -> None:
    await store.claim_key(idempotency_record("b"))
    damage(store, "b")
    await store.take_over_runs("next")
    assert await logged_numbers(store, "b") == []
    assert await store.load_history("ann", "b") == ()
    assert await store.delete_run("ann", "b") is False
    assert (await store.claim_key(idempotency_record("x"))).run_id == "x"
    tight = attrs.evolve(KEEP_ALL, log_seconds=0.0, max_runs=1, max_bytes=1)
    assert await store.purge(tight, 1e8) == PurgeResult()


async def test_a_run_that_was_given_up_keeps_its_header_for_examination(store: SqliteStore) -> None:
    damage(store, "b")
    await store.take_over_runs("next")
    await store.begin_run(header("b"), Ownership("next"))
    await store.end_run(ended("b"))
    assert await store.find_run("ann", "b") == NoRun()
    assert await completed_runs(store) == []
    assert row_of(store, "b") == (1, "failed", "process_died", "", b"\xff\x00")


async def test_runs_that_continue_a_deleted_session_keep_their_own_messages(
    store: SqliteStore,
) -> None:
    await store.end_run(ended("later", parent="b"))
    damage(store, "b")
    with pytest.raises(StoreError, match="the header of run 'b' is damaged"):
        await store.load_history("ann", "later")
    await store.take_over_runs("next")
    assert await history_texts(store, "later") == texts_of("later")
    assert await store.delete_run("ann", "later")
    assert row_of(store, "b") is None


async def test_giving_up_is_durable(path: Path) -> None:
    async with open_sqlite(path) as store:
        await begin_and_log(store, "a")
        damage(store, "a")
        await store.take_over_runs("next")
    async with open_sqlite(path) as store:
        with structlog.testing.capture_logs() as lines:
            assert await store.take_over_runs("third") == ()
        assert lines == []


async def test_a_failed_write_gives_up_no_run(store: SqliteStore) -> None:
    damage(store, "b")
    writer_connection(store).execute(
        "CREATE TEMP TRIGGER no BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    with structlog.testing.capture_logs() as lines, pytest.raises(StoreError, match="no"):
        await store.take_over_runs("next")
    assert lines == []
    assert row_of(store, "b")[:2] == (0, "in_progress")
    writer_connection(store).execute("DROP TRIGGER no")
    assert await taken_headers(store, "next") == [header("a"), header("c")]
