"""Connections to PostgreSQL: their loss, their errors, and what is between."""

from __future__ import annotations

import random
import signal
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from functools import partial

import pytest
import trio

from hermes_trio.core.records import IdempotencyRecord, NoRun
from hermes_trio.doctor import local
from hermes_trio.doctor.findings import Level
from hermes_trio.settings import Settings
from hermes_trio.stores.base import StoreError
from tests.stores.helpers import completed_runs, end_all
from tests.stores.samples import ended, many
from tests.support.disks import fill_disk
from tests.support.postgres import PostgresServer, run_postgres, run_small_postgres

pytest.importorskip("psycopg")

import psycopg

from hermes_trio.stores.postgres import (
    PostgresStore,
    connections,
    open_postgres,
)
from hermes_trio.stores.sql.database import SqlConnection


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    with run_postgres(is_safe=True) as server:
        yield server


def end_other_connections(server: PostgresServer) -> None:
    """Cut every connection to the server, and wait until it has forgotten them."""
    server.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )


@pytest.mark.parametrize("place", ["postgres_url", "pgbouncer_url"])
async def test_lost_connections_are_replaced(
    postgres_server: PostgresServer, request: pytest.FixtureRequest, place: str
) -> None:
    postgres_url = request.getfixturevalue(place)
    async with open_postgres(postgres_url) as store:
        for run in many(3):
            await store.end_run(run)
            assert await store.find_run("ann", run.header.run_id) != NoRun()
            end_other_connections(postgres_server)
        await store.check()
        assert len(await completed_runs(store)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["restart", "crash"])
async def test_the_server_stops_and_starts(own_server: PostgresServer, how: signal.Signals) -> None:
    async with open_postgres(own_server.create_database()) as store:
        await end_all(store, many(20))
        own_server.stop(how)
        for attempt in (store.check, lambda: store.end_run(ended("lost"))):
            with pytest.raises(StoreError, match="cannot be reached"):
                await attempt()
        own_server.start()
        await store.check()
        assert len(await completed_runs(store)) == 20
        assert await store.find_run("ann", "lost") == NoRun()


@pytest.mark.slow
async def test_a_full_disk_is_noticed_until_there_is_room_again() -> None:
    """What needs no new page succeeds in between."""
    key = IdempotencyRecord("ann", "route", "key", "fingerprint", "run", 1.0)

    async def use_up(store: PostgresStore) -> None:
        for number in range(10_000):
            await store.end_run(ended(f"b{number}"))

    with run_small_postgres() as server:
        async with open_postgres(server.create_database()) as store:
            await store.claim_key(key)
            await store.check()
            ballast = await trio.to_thread.run_sync(fill_disk, server.directory)
            with pytest.raises(StoreError, match="the disk of the database server is full"):
                await use_up(store)
            for _ in range(3):
                await store.claim_key(key)
                for notice in (store.heartbeat, store.check):
                    with pytest.raises(StoreError, match="the disk of the database server is full"):
                        await notice()
            ballast.unlink()
            await store.heartbeat()
            commits = store.commits
            await store.heartbeat()
            assert store.commits == commits
            await store.end_run(ended("c"))


async def test_a_commit_that_was_cut_is_not_repeated(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    """It may have been saved, so only the caller can know what to do."""
    seen: list[SqlConnection] = []

    def cut_at_commit(connection: SqlConnection) -> None:
        seen.append(connection)
        connection.execute(
            "CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON probe DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION cut()"
        )
        connection.execute("INSERT INTO probe (id, checked_at) VALUES (1, 1.0)")

    async with open_postgres(postgres_url) as store:
        postgres_server.execute(
            "CREATE OR REPLACE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$",
            postgres_url,
        )
        with pytest.raises(StoreError):
            await store._writer.submit(cut_at_commit)
        assert len(seen) == 1
        await store.check()


async def test_a_conflict_with_another_writer_is_tried_again(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    calls = 0

    def meet_conflict(connection: SqlConnection) -> int:
        nonlocal calls
        calls += 1
        if calls < 4:
            raise psycopg.errors.DeadlockDetected("again")
        return calls

    async with open_postgres(postgres_url) as store:
        assert await store._writer.submit(meet_conflict) == 4


async def test_errors_name_the_reason_and_no_password(postgres_server: PostgresServer) -> None:
    url = postgres_server.url("nowhere").replace("postgres@", "postgres:hush@")
    with pytest.raises(StoreError, match="does not exist") as caught:
        async with open_postgres(url):
            pass
    assert "hush" not in str(caught.value)
    with pytest.raises(StoreError, match="cannot be reached") as caught:
        async with open_postgres("postgresql://ann:hush@127.0.0.1:1/x"):
            pass
    assert "hush" not in str(caught.value)


@pytest.mark.slow
async def test_no_failure_tells_the_password(
    own_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = own_server.create_database().replace("postgres@", "postgres:hush@")
    told: list[str] = []

    async def fail(call: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(StoreError) as caught:
            await call()
        told.extend(traceback.format_exception(caught.value))

    settings = Settings(store=url)
    async with open_postgres(url) as store:
        await store.check()
        told += [repr(local.check_store(settings)), repr(connections.inspect_database(url))]
        own_server.stop()
        calls: tuple[Callable[[], Awaitable[object]], ...] = (
            store.check,
            partial(store.end_run, ended("a")),
            partial(store.find_run, "ann", "a"),
            store.list_nodes,
            partial(store.wait_notices, "n", 5),
        )
        for call in calls:
            await fail(call)
        told.append(repr(local.check_store(settings)))
    await fail(partial(open_postgres(url).__aenter__))
    told += [repr(settings), caplog.text]
    assert "cannot be reached" in "".join(told)
    assert "hush" not in "".join(told)


@pytest.mark.parametrize("is_deferred", [False, True])
async def test_a_job_that_fails_does_not_fail_others(postgres_url: str, is_deferred: bool) -> None:
    def fail(connection: SqlConnection) -> None:
        if is_deferred:  # the statement after it raises the error
            connection.executemany("INSERT INTO probe (id, checked_at) VALUES (?, 1.0)", [(2,)])
        else:
            connection.execute("INSERT INTO probe (id, checked_at) VALUES (2, 1.0)")

    failures: list[StoreError] = []

    async def submit_failure(store: PostgresStore) -> None:
        try:
            await store._writer.submit(fail)
        except StoreError as error:
            failures.append(error)

    async with open_postgres(postgres_url) as store:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_all, store, many(10))
            nursery.start_soon(submit_failure, store)
            nursery.start_soon(store.check)
        assert len(await completed_runs(store)) == 10
    assert "CheckViolation" in str(failures)


@pytest.mark.parametrize(
    ("failing", "reason"),
    [
        ("INSERT INTO probe (id, checked_at) VALUES (2, 1.0)", "CheckViolation"),
        ("SELECT pg_terminate_backend(pg_backend_pid())", "reached|lost|shutting down"),
    ],
    ids=["refused", "cut"],
)
@pytest.mark.parametrize("place", ["postgres_url", "pgbouncer_url"])
async def test_statements_can_be_executed_after_a_failed_pipeline(
    request: pytest.FixtureRequest, place: str, failing: str, reason: str
) -> None:
    """The driver counts as prepared what the server skipped, or what was prepared on a lost connection."""
    chance = random.Random(0)
    statements = [f"SELECT principal, {number} FROM sessions" for number in range(6)]

    def work(connection: SqlConnection, chosen: list[str], failing_at: int) -> None:
        for number, statement in enumerate(chosen):
            if number == failing_at:
                connection.executemany(failing, [()])
            connection.execute(statement).fetchall()

    async with open_postgres(request.getfixturevalue(place)) as store:
        for _ in range(100):
            fails = chance.random() < 0.3
            chosen = chance.choices(statements, k=chance.randrange(1, 5))
            failing_at = chance.randrange(len(chosen)) if fails else -1
            with pytest.raises(StoreError, match=reason) if fails else nullcontext():
                await store._writer.submit(partial(work, chosen=chosen, failing_at=failing_at))


async def test_a_job_that_gives_up_fails_no_other_after_a_failed_statement(
    postgres_url: str,
) -> None:
    """The rollback is not skipped along with the statements that wait behind the failed one."""

    def give_up(connection: SqlConnection) -> None:
        connection.executemany("INSERT INTO probe (id, checked_at) VALUES (?, 1.0)", [(2,)])
        raise StoreError("this job gives up")

    async def submit(store: PostgresStore) -> None:
        with pytest.raises(StoreError, match="gives up"):
            await store._writer.submit(give_up)

    async with open_postgres(postgres_url) as store:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_all, store, many(10))
            nursery.start_soon(submit, store)
        assert len(await completed_runs(store)) == 10


def test_statements_are_prepared_without_a_pooler(postgres_url: str) -> None:
    with connections.connect(postgres_url) as direct:
        assert direct.prepare_threshold == 3


def test_statements_are_not_prepared_through_a_pooler(pgbouncer_url: str) -> None:
    with connections.connect(pgbouncer_url) as pooled:
        assert pooled.prepare_threshold is None
    assert connections.inspect_database(pgbouncer_url).is_pooled


async def test_doctor(postgres_server: PostgresServer, postgres_url: str) -> None:
    settings = Settings(store=postgres_url)
    async with open_postgres(postgres_url) as store:
        used = local.check_store(settings)
        await store.join("a", "here")
        await store.join("b", "there")
        assert connections.inspect_database(postgres_url).living_nodes == 2
        await store.leave("a")
    assert used.level is Level.WARN  # the server of the tests does not flush to disk
    assert "may lose" in used.message
    found = connections.inspect_database(postgres_url)
    assert (found.encoding, found.is_pooled, found.living_nodes) == ("UTF8", False, 1)
    fact = local.PostgresReachable("15.1, UTF8", True, 1, 2, 3, True, False)
    assert local.assess_postgres(fact).message == (
        "PostgreSQL 15.1, UTF8 answers, schema version 1, the next start migrates it to 2,"
        " through a pooler: statements are not prepared, servers that use it: 3"
    )
    missing = local.check_store(Settings(store=postgres_server.url("nowhere")))
    assert missing.level is Level.FAIL


@pytest.mark.parametrize(
    "url",
    ["postgresql://ann:hu%zzsh@db/x", "postgresql://ann@db/x?hush", "postgresql://ann@[hush/x"],
)
async def test_a_url_that_cannot_be_parsed_is_not_repeated(url: str) -> None:
    """It may contain a password."""
    with pytest.raises(StoreError, match="need percent-encoding") as caught:
        async with open_postgres(url):
            pass
    assert "hu" not in str(caught.value)
    assert caught.value.__cause__ is None
    with pytest.raises(StoreError, match="need percent-encoding"):
        connections.inspect_database(url)
