"""Nodes that share a database: their leases, and taking over the runs of dead ones."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import attrs
import pytest
import trio

from hermes_trio.core.records import Node, Ownership
from hermes_trio.stores.base import LeasedStore
from hermes_trio.stores.sql import owners, runs
from hermes_trio.stores.sql.database import SqlConnection
from tests.stores.helpers import BlockingJob, completed_runs
from tests.stores.samples import batch, ended, header, idempotency_record, logged_numbers
from tests.support.postgres import PostgresServer

pytest.importorskip("psycopg")

from hermes_trio.stores.postgres import PostgresOptions, PostgresStore, open_postgres
from hermes_trio.stores.postgres.dialect import CLAIM_SECONDS

SHORT = PostgresOptions(lease_seconds=0.3)
LONG = PostgresOptions(lease_seconds=600.0)
ME, YOU = Ownership("me"), Ownership("you", 1)


@pytest.fixture(params=["postgres_url", "pgbouncer_url"])
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a database without records, directly and through PgBouncer."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
async def stores(url: str) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    """Two stores open on one database, as two processes have them: leases of the first are short."""
    async with AsyncExitStack() as stack:
        yield (
            await stack.enter_async_context(open_postgres(url, SHORT)),
            await stack.enter_async_context(open_postgres(url, LONG)),
        )


async def until_lapsed(server: PostgresServer, url: str, node: str) -> None:
    """Wait until the database considers the lease of a node to have lapsed."""
    remaining = (
        "SELECT CAST(extract(epoch FROM heartbeat_at + make_interval(secs => lease_seconds)"
        f" - clock_timestamp()) AS FLOAT8) FROM nodes WHERE node = '{node}'"
    )
    while True:
        [(seconds,)] = await trio.to_thread.run_sync(server.execute, remaining, url)
        assert isinstance(seconds, float)
        if seconds < 0:
            return
        await trio.sleep(seconds)


async def test_a_run_is_taken_over_when_the_lease_of_its_node_has_lapsed(
    postgres_server: PostgresServer, url: str, stores: tuple[PostgresStore, PostgresStore]
) -> None:
    first, second = stores
    await second.join("you", "there")
    await first.join("me", "here")
    await first.begin_run(header("a"), ME)
    await first.append_log([batch("a", 0)], ME)
    assert await second.take_over_runs("you") == ()
    await until_lapsed(postgres_server, url, "me")
    [taken] = await second.take_over_runs("you")
    assert (taken.header, taken.ownership) == (header("a"), YOU)
    # The former owner wakes up, and can change nothing.
    assert await first.renew_lease("me") is False
    assert await first.append_log([batch("a", 1)], ME) == {"a"}
    assert await first.end_run(ended("a"), [batch("a", 1)], ownership=ME) is False
    assert await second.end_run(ended("a"), ownership=YOU) is True
    assert await logged_numbers(first, "a") == [0]
    assert await completed_runs(first) == ["a"]


async def test_a_renewed_lease_keeps_the_runs(
    postgres_server: PostgresServer, url: str, stores: tuple[PostgresStore, PostgresStore]
) -> None:
    first, second = stores
    await first.join("me", "here")
    await second.begin_run(header("a"), Ownership("long"))
    await second.join("long", "there")
    await until_lapsed(postgres_server, url, "me")
    assert await first.renew_lease("me") is False  # others may have taken over its runs
    assert await first.renew_lease("me") is True
    await first.begin_run(header("b"), ME)
    assert await second.take_over_runs("you") == ()
    assert await first.take_over_runs("me") == ()


async def test_a_node_that_left_is_dead_at_once(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    _, second = stores
    await second.join("me", "here")
    await second.begin_run(header("a"), ME)
    assert await second.take_over_runs("you") == ()
    await second.leave("me")
    await second.leave("me")
    assert [run.ownership for run in await second.take_over_runs("you")] == [YOU]


async def test_nodes_are_listed(
    postgres_server: PostgresServer, url: str, stores: tuple[PostgresStore, PostgresStore]
) -> None:
    first, second = stores
    assert isinstance(first, LeasedStore)
    assert (first.lease_seconds, second.lease_seconds) == (0.3, 600.0)
    await first.join("b", "host-b:8000")
    await second.join("a", "host-a:8000")
    for name in "xy":
        await second.begin_run(header(name), Ownership("a"))
    await second.end_run(ended("y"), ownership=Ownership("a"))
    await until_lapsed(postgres_server, url, "b")
    alive, dead = await first.list_nodes()
    assert alive == Node("a", "host-a:8000", alive.silent_seconds, is_alive=True, live_runs=1)
    assert dead == Node("b", "host-b:8000", dead.silent_seconds, is_alive=False, live_runs=0)
    assert 0 <= alive.silent_seconds < dead.silent_seconds + 60
    assert dead.silent_seconds > 0.3


async def test_nodes_that_died_long_ago_are_forgotten(
    postgres_server: PostgresServer, url: str, stores: tuple[PostgresStore, PostgresStore]
) -> None:
    first, second = stores
    await first.join("old", "here")
    await first.join("recent", "here")
    for node, minutes in (("old", 61), ("recent", 59)):
        age = f"UPDATE nodes SET heartbeat_at = now() - INTERVAL '{minutes} min' WHERE node = '{node}'"
        await trio.to_thread.run_sync(postgres_server.execute, age, url)
    assert [node.name for node in await second.list_nodes()] == ["recent"]
    await second.join("new", "there")
    rows = postgres_server.execute("SELECT node FROM nodes ORDER BY node", url)
    assert rows == [("new",), ("recent",)]
    assert await first.renew_lease("old") is False  # it was only frozen
    assert [node.address for node in await second.list_nodes()] == ["there", "here", "here"]


async def test_the_owner_of_a_run(stores: tuple[PostgresStore, PostgresStore]) -> None:
    first, second = stores
    await first.begin_run(header("a"), ME)
    assert await second.find_owner("ann", "a") == "me"
    assert await second.find_owner("bob", "a") == ""
    await second.take_over_runs("you")
    assert await first.find_owner("ann", "a") == "you"
    await second.end_run(ended("a"), ownership=YOU)
    assert await first.find_owner("ann", "a") == ""


async def test_two_nodes_that_take_over_at_once_get_different_runs(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = stores
    for node in ("first", "second"):
        await second.join(node, "")
    async with trio.open_nursery() as nursery:
        for number in range(200):
            run = header(f"run-{number}", float(number))
            nursery.start_soon(second.begin_run, run, ME)
    seen: Counter[str] = Counter()

    async def take_over(store: PostgresStore, node: str) -> None:
        while taken := await store.take_over_runs(node):
            for run in taken:
                assert run.ownership == Ownership(node, 1)
                seen[run.header.run_id] += 1
                end = ended(run.header.run_id, run.header.stamp.created_at)
                assert await store.end_run(end, ownership=run.ownership)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_over, first, "first")
        nursery.start_soon(take_over, second, "second")
    # One node may have seen nothing because the other had locked all there was; then it is done.
    assert seen == Counter({f"run-{number}": 1 for number in range(200)})
    assert len(await completed_runs(first)) == 200


async def until_waiting(server: PostgresServer) -> None:
    """Wait until a statement waits for a lock."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with trio.fail_after(10):
        while await trio.to_thread.run_sync(server.execute, waiting) == [(0,)]:
            pass


async def test_an_append_waits_for_a_take_over_under_way(
    postgres_server: PostgresServer, stores: tuple[PostgresStore, PostgresStore]
) -> None:
    """And finds, when it goes on, that the run has another owner."""
    first, second = stores
    for name in "ab":
        await first.begin_run(header(name), ME)
    pause = BlockingJob()
    lost: list[frozenset[str]] = []

    def take_over(connection: SqlConnection) -> None:
        assert len(owners.take_over(connection, "you").runs) == 2
        pause(connection)

    async def append() -> None:
        lost.append(await first.append_log([batch("a", 0), batch("b", 0)], ME))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(second._writer.submit, take_over)
        await pause.entered.wait()
        nursery.start_soon(append)
        await until_waiting(postgres_server)
        assert lost == []
        pause.open()
    assert lost == [{"a", "b"}]
    assert await logged_numbers(first, "a") == []


async def test_a_take_over_passes_over_an_append_under_way(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    """Else it would not see what the append adds."""
    first, second = stores
    for name in "ab":
        await first.begin_run(header(name), ME)
    pause = BlockingJob()

    def append(connection: SqlConnection) -> None:
        assert runs.append_log(connection, [batch("a", 0)], ME) == frozenset()
        pause(connection)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first._writer.submit, append)
        await pause.entered.wait()
        [taken] = await second.take_over_runs("you")
        assert taken.header.run_id == "b"
        pause.open()
    assert [run.header.run_id for run in await second.take_over_runs("you")] == ["a", "b"]
    assert await logged_numbers(second, "a") == [0]


async def test_an_end_waits_for_a_take_over_under_way(
    postgres_server: PostgresServer, stores: tuple[PostgresStore, PostgresStore]
) -> None:
    first, second = stores
    await first.begin_run(header("a"), ME)
    pause = BlockingJob()
    answers: list[bool] = []

    def take_over(connection: SqlConnection) -> None:
        owners.take_over(connection, "you")
        pause(connection)

    async def end() -> None:
        answers.append(await first.end_run(ended("a"), [batch("a", 0)], ownership=ME))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(second._writer.submit, take_over)
        await pause.entered.wait()
        nursery.start_soon(end)
        await until_waiting(postgres_server)
        pause.open()
    assert answers == [False]
    assert await completed_runs(first) == []


async def test_a_renewal_does_not_wait_for_writers_or_readers(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    _, second = stores
    await second.join("you", "there")
    pauses = [BlockingJob() for _ in range(5)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second._writer.submit, pauses[0])
        for pause in pauses[1:]:
            nursery.start_soon(second._readers.read, pause)
        for pause in pauses:
            await pause.entered.wait()
        with trio.fail_after(10):
            assert await second.renew_lease("you") is True
        for pause in pauses:
            pause.open()


async def test_keys_without_a_run_are_released_when_they_are_old(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    """A living node may be about to begin the run of a young one."""
    first, second = stores
    now = time.time()
    old = idempotency_record("old", key="old", made_at=now - CLAIM_SECONDS - 60.0)
    young = idempotency_record("young", key="young", made_at=now)
    begun = idempotency_record("begun", key="begun", made_at=now - CLAIM_SECONDS - 60.0)
    for record in (old, young, begun):
        await first.claim_key(record)
    await first.begin_run(header("begun"), ME)
    await second.take_over_runs("you")
    for record, is_released in ((old, True), (young, False), (begun, False)):
        again = attrs.evolve(record, run_id="again")
        assert await first.claim_key(again) == (again if is_released else record)
