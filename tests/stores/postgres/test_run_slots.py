"""Slots for the runs of a principal on all nodes together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from tests.stores.samples import KEEP_ALL
from tests.support.postgres import PostgresServer

pytest.importorskip("psycopg")

from hermes_trio.stores.postgres import PostgresStore, open_postgres
from tests.stores.postgres.cluster import LEASE_SECONDS, add_node, open_two
from tests.stores.postgres.test_commands import PLACES, wait_for_lock


def held(server: PostgresServer, url: str) -> list[str]:
    return [
        str(slot) for (slot,) in server.execute("SELECT slot FROM run_slots ORDER BY slot", url)
    ]


@PLACES
async def test_a_principal_has_a_limited_number_on_all_nodes(
    request: pytest.FixtureRequest,
    postgres_server: PostgresServer,
    place: str,
) -> None:
    url = request.getfixturevalue(place)
    async with open_two(url) as (one, other):
        await one.join("n1", "")
        await other.join("n2", "")
        assert await one.take_run_slot("ann", "a", "n1", 2)
        assert await one.take_run_slot("ann", "a", "n1", 2)  # again, as after a lost answer
        assert await other.take_run_slot("ann", "b", "n2", 2)
        assert not await one.take_run_slot("ann", "c", "n1", 2)
        assert not await other.take_run_slot("ann", "d", "n2", 2)
        assert await one.take_run_slot("ann", "a", "n1", 2)  # even now
        assert await other.take_run_slot("bob", "e", "n2", 2)
        await other.give_back_run_slots(["a", "unknown"])
        assert await other.take_run_slot("ann", "f", "n2", 2)
        assert not await one.take_run_slot("ann", "g", "n1", 2)
        await one.give_back_run_slots([])
        await one.give_back_run_slots(["b", "f", "e"])


async def test_slots_of_dead_nodes_are_taken_over(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with open_postgres(postgres_url) as store:
        for node in ("n1", "n2"):
            add_node(postgres_server, postgres_url, node)
        for slot in ("a", "b"):
            assert await store.take_run_slot("ann", slot, "n1", 2)
        assert not await store.take_run_slot("ann", "c", "n2", 2)
        add_node(postgres_server, postgres_url, "n1", LEASE_SECONDS + 1)
        assert await store.take_run_slot("ann", "c", "n2", 2)
        assert await store.take_run_slot("ann", "d", "n2", 2)
        assert not await store.take_run_slot("ann", "e", "n2", 2)
        await store.give_back_run_slots(["a", "b"])  # the dead node wakes up
        assert held(postgres_server, postgres_url) == ["c", "d"]


async def test_a_node_whose_lease_has_lapsed_takes_no_slot_twice(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with open_postgres(postgres_url) as store:
        add_node(postgres_server, postgres_url, "n1")
        assert await store.take_run_slot("ann", "a", "n1", 1)
        add_node(postgres_server, postgres_url, "n1", LEASE_SECONDS + 1)
        assert not await store.take_run_slot("ann", "b", "n1", 1)
        assert held(postgres_server, postgres_url) == ["a"]


async def take_at_once(stores: Sequence[PostgresStore], nodes: list[str], limit: int) -> list[str]:
    """Take as many slots as possible, on all nodes at the same time; return their names."""
    winners = list[str]()

    async def take(store: PostgresStore, node: str, slot: str) -> None:
        if await store.take_run_slot("ann", slot, node, limit):
            winners.append(slot)

    async with trio.open_nursery() as nursery:
        for number in range(limit + 1):
            for node in nodes:
                slot = f"{node}-{number}"
                nursery.start_soon(take, stores[number % len(stores)], node, slot)
    return winners


@pytest.mark.parametrize("left_by", ["", "dead"])
async def test_nodes_that_take_slots_at_once_get_no_more_than_there_are(
    postgres_server: PostgresServer, postgres_url: str, left_by: str
) -> None:
    nodes, limit = [f"n{number}" for number in range(8)], 5
    async with open_two(postgres_url) as stores:
        for node in nodes:
            add_node(postgres_server, postgres_url, node)
        for _ in range(20):
            if left_by:
                add_node(postgres_server, postgres_url, left_by)
                assert len(await take_at_once(stores, [left_by], limit)) == limit
                add_node(postgres_server, postgres_url, left_by, LEASE_SECONDS + 1)
            winners = await take_at_once(stores, nodes, limit)
            assert len(winners) == limit
            assert held(postgres_server, postgres_url) == sorted(winners)
            await stores[1].give_back_run_slots(winners)
    assert held(postgres_server, postgres_url) == []


async def test_a_cancelled_call_does_not_take_a_slot_after_its_caller_has_given_it_back(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    """Its thread goes on, and waits for a slot that another transaction is about to give up."""
    import psycopg  # noqa: PLC0415 - not installed everywhere

    with psycopg.connect(postgres_url) as other:
        async with open_postgres(postgres_url) as store:
            for node in ("n1", "n2"):
                add_node(postgres_server, postgres_url, node)
            other.execute("INSERT INTO run_slots VALUES ('ann', 1, 'theirs', 'n2')")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.take_run_slot, "ann", "ours", "n1", 1)
                await wait_for_lock(postgres_server)
                nursery.cancel_scope.cancel()
            await store.give_back_run_slots(["ours"])
            other.rollback()
    assert held(postgres_server, postgres_url) == []


async def test_slots_that_dead_nodes_left_are_purged(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with open_postgres(postgres_url) as store:
        for node in ("n1", "n2"):
            add_node(postgres_server, postgres_url, node)
        assert await store.take_run_slot("ann", "live", "n1", 9)
        assert await store.take_run_slot("ann", "left", "n2", 9)
        postgres_server.execute(
            "UPDATE run_slots SET taken_at = taken_at - interval '61 min'", postgres_url
        )
        assert await store.take_run_slot("ann", "recent", "n2", 9)
        add_node(postgres_server, postgres_url, "n2", LEASE_SECONDS + 1)
        await store.purge(KEEP_ALL, 2.0)
    assert held(postgres_server, postgres_url) == ["live", "recent"]
