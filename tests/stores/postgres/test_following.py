"""Reading the logs of many runs with one statement."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from hermes_trio.core.changes import TextAdded
from hermes_trio.core.log_codec import decode_changes
from hermes_trio.core.records import LogBatch, LogProgress
from hermes_trio.stores.base import StoreError
from tests.stores.samples import KEEP_ALL, batch, ended
from tests.support.postgres import PostgresServer

pytest.importorskip("psycopg")

from hermes_trio.stores.postgres import PostgresStore, following, open_postgres, schema
from tests.stores.postgres.cluster import begin, cursor, open_two


def large(run_id: str, first: int, size: int = 400_000) -> LogBatch:
    """Return a batch whose body is large. It cannot be decoded."""
    return LogBatch("ann", run_id, first, b"x" * size, 1)


def firsts(progress: LogProgress) -> list[int]:
    """Return the first numbers of the batches."""
    return [each.first for each in progress.batches]


async def read_to_end(store: PostgresStore, run_ids: Sequence[str]) -> dict[str, list[int]]:
    """Follow logs until there is nothing more; return the first numbers of all batches."""
    found: dict[str, list[int]] = {run_id: [] for run_id in run_ids}
    cursors = [cursor(run_id) for run_id in run_ids]
    while cursors:
        progress = await store.follow_logs(cursors)
        assert [each.cursor for each in progress] == cursors
        assert any(each.batches for each in progress) or not any(each.has_more for each in progress)
        cursors = []
        for each in progress:
            found[each.cursor.run_id] += firsts(each)
            if each.has_more:
                last = each.batches[-1] if each.batches else None
                after = last.first + last.count if last else each.cursor.first
                cursors.append(attrs.evolve(each.cursor, first=after))
    return found


@pytest.mark.parametrize("place", ["postgres_url", "pgbouncer_url"])
async def test_logs_are_followed_from_their_cursors(
    request: pytest.FixtureRequest, place: str
) -> None:
    async with open_two(request.getfixturevalue(place)) as (owner, reader):
        for run_id in ("a", "b", "silent"):
            await begin(owner, run_id)
        await owner.append_log([batch("a", 0, 3), batch("a", 3, 2), batch("b", 0)])
        cursors = [cursor("b", 1), cursor("a", 4), cursor("silent"), cursor("none"), cursor("a", 2)]
        for _ in range(7):  # often enough for a prepared statement, and its generic plan
            found = await reader.follow_logs(cursors)
        assert [each.cursor for each in found] == cursors
        assert [firsts(each) for each in found] == [[], [3], [], [], [0, 3]]
        assert [each.is_live for each in found] == [True, True, True, False, True]
        assert not any(each.has_more for each in found)
        assert found[4].batches == (batch("a", 0, 3), batch("a", 3, 2))
        changes = decode_changes(found[1].batches[0].body)
        assert [change.text for change in changes if isinstance(change, TextAdded)] == ["3", "4"]


async def test_nothing_is_asked_of_the_database_without_cursors(postgres_url: str) -> None:
    async with open_postgres(postgres_url) as store:
        assert await store.follow_logs([]) == ()
    with pytest.raises(StoreError, match="closed"):
        await store.follow_logs([cursor("a")])


async def test_an_ended_run_is_not_live_and_its_rest_is_returned(postgres_url: str) -> None:
    async with open_two(postgres_url) as (owner, reader):
        await begin(owner, "a")
        await owner.append_log([batch("a", 0)])
        await owner.end_run(ended("a"), [batch("a", 1)])
        [found] = await reader.follow_logs([cursor("a", 1)])
        assert (firsts(found), found.is_live) == ([1], False)
        [found] = await reader.follow_logs([cursor("a", 2)])
        assert (firsts(found), found.is_live) == ([], False)


async def test_expired_and_deleted_logs_are_out_of_sight(postgres_url: str) -> None:
    async with open_postgres(postgres_url) as store:
        for run_id in ("expired", "deleted"):
            await begin(store, run_id)
            await store.end_run(ended(run_id), [batch(run_id, 0)])
        await store.delete_run("ann", "deleted")
        day = schema.SECONDS_PER_DAY
        await store.purge(attrs.evolve(KEEP_ALL, log_seconds=1.0), 0.9 * day)
        for found in await store.follow_logs([cursor("expired"), cursor("deleted")]):
            assert (found.batches, found.is_live, found.has_more) == ((), False, False)


async def test_a_run_of_another_principal_is_none(postgres_url: str) -> None:
    async with open_postgres(postgres_url) as store:
        await begin(store, "a")
        await store.append_log([batch("a", 0)])
        [found] = await store.follow_logs([cursor("a", principal="bob")])
        assert (found.batches, found.is_live) == ((), False)


async def test_odd_ids_are_found(postgres_url: str) -> None:
    """The database has no NUL in texts, nor in the arrays of texts that are sent to it."""
    odd = '\0 \1 ä \U0001f600 {",\\'
    async with open_postgres(postgres_url) as store:
        await begin(store, odd)
        await store.append_log([batch(odd, 0)])
        [found] = await store.follow_logs([cursor(odd)])
        assert (firsts(found), found.is_live) == ([0], True)
        with pytest.raises(StoreError, match="not valid Unicode"):
            await store.follow_logs([cursor("\ud800")])


async def test_a_long_log_does_not_keep_others_waiting(postgres_url: str) -> None:
    async with open_postgres(postgres_url) as store:
        for run_id in ("long", "short", "ended"):
            await begin(store, run_id)
        await store.append_log([large("long", number) for number in range(6)])
        await store.append_log([batch("short", 0)])
        await store.end_run(ended("ended"), [batch("ended", 0)])
        found = await store.follow_logs([cursor("long"), cursor("short"), cursor("ended")])
        assert [firsts(each) for each in found] == [[0, 1, 2], [0], [0]]
        assert [each.has_more for each in found] == [True, False, False]
        assert [each.is_live for each in found] == [True, True, False]
        assert await read_to_end(store, ["long", "short"]) == {"long": [*range(6)], "short": [0]}


async def test_a_run_that_has_ended_is_live_until_all_of_its_log_was_returned(
    postgres_url: str,
) -> None:
    async with open_postgres(postgres_url) as store:
        run_ids = ["a", "b", "c"]
        for run_id in run_ids:
            await store.end_run(ended(run_id), [large(run_id, each, 700_000) for each in range(2)])
        found = await store.follow_logs([cursor(run_id) for run_id in run_ids])
        assert [firsts(each) for each in found] == [[0], [0], []]
        assert [(each.is_live, each.has_more) for each in found] == [(True, True)] * 3
        assert await read_to_end(store, run_ids) == {key: [0, 1] for key in run_ids}


async def test_a_batch_above_the_limit_is_returned(postgres_url: str) -> None:
    async with open_postgres(postgres_url) as store:
        await begin(store, "a")
        await store.append_log([large("a", each, 3 * following.MAX_BYTES) for each in range(2)])
        assert await read_to_end(store, ["a"]) == {"a": [0, 1]}


async def test_small_batches_are_limited_in_number(postgres_url: str) -> None:
    async with open_postgres(postgres_url) as store:
        count = following.MAX_BATCHES + 10
        await begin(store, "a")
        await begin(store, "b")
        await store.append_log([batch("a", number) for number in range(count)])
        await store.append_log([batch("b", number) for number in range(3)])
        [found] = await store.follow_logs([cursor("a")])
        assert len(found.batches) == following.MAX_BATCHES
        assert found.has_more
        found_of_many = await store.follow_logs([cursor("a"), *[cursor("b")] * 99])
        assert len(found_of_many[0].batches) == following.MIN_BATCHES
        assert [len(each.batches) for each in found_of_many[1:]] == [3] * 99
        assert await read_to_end(store, ["a"]) == {"a": [*range(count)]}


async def test_a_damaged_batch_does_not_fail_other_logs(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with open_postgres(postgres_url) as store:
        for run_id in ("a", "b"):
            await begin(store, run_id)
        await store.append_log([batch("a", 0), batch("b", 0)])
        postgres_server.execute("UPDATE log SET body = 'x' WHERE run_id = 'a'", postgres_url)
        found = await store.follow_logs([cursor("a"), cursor("b")])
        assert [each.body for each in found[0].batches] == [b"x"]
        assert found[1].batches == (batch("b", 0),)


async def test_only_the_partition_of_the_run_is_read(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    """Also by the generic plan of a prepared statement, which does not know the runs."""
    async with open_postgres(postgres_url) as store:
        await begin(store, "a")
        await store.append_log([batch("a", 0)])
    statement = following._FOLLOW.replace(":principals", "$1").replace(":run_ids", "$2")
    statement = statement.replace(":firsts", "$3").replace(":limit", "$4").replace(":bytes", "$5")
    plan = explain_generic(postgres_url, statement)
    partitions = [line for line in plan if " on log_" in line]
    assert len(partitions) > 2
    read = [line for line in partitions if "never executed" not in line]
    assert {line.split(" on ")[1].split()[0] for line in read} == {"log_other"}
    assert not any("Seq Scan on log_" in line for line in read)


def explain_generic(url: str, statement: str) -> list[str]:
    """Execute a statement for the run ``a`` with a generic plan; return the lines of the plan."""
    import psycopg  # noqa: PLC0415 - not installed everywhere

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute("SET enable_seqscan = off")  # the tables of a test are tiny
        types = "text[], text[], bigint[], bigint, bigint"
        connection.execute(f"PREPARE follow ({types}) AS {statement}".encode())
        rows = connection.execute(
            b"EXPLAIN (ANALYZE, COSTS OFF) EXECUTE follow ('{ann}', '{a}', '{0}', 10, 1000)"
        ).fetchall()
        return [line for (line,) in rows]
