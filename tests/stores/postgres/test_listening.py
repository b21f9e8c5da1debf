"""Notices between nodes: their encoding, and their way through the database."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from hermes_trio.core.records import Notice
from hermes_trio.stores.base import StoreError
from tests.support.postgres import PostgresServer, run_postgres

pytest.importorskip("psycopg")

import psycopg

from hermes_trio.stores.postgres import PostgresStore, listening, open_postgres
from hermes_trio.stores.postgres.connections import PostgresDatabase
from hermes_trio.stores.postgres.listening import RECONNECTED
from tests.stores.postgres.cluster import cut_listeners, listening_processes, open_two, receive

GROWN = Notice("grown", ("a", "b"))


# -- encoding --


def decode_all(payloads: list[str]) -> tuple[Notice, ...]:
    """Decode payloads as the receiver does."""
    return listening.merge_notices(map(listening.decode_notice, payloads))


def test_notices_of_one_topic_are_merged() -> None:
    given = [Notice("grown", ("a", "b")), Notice("commands"), Notice("grown", ("b", "c"))]
    payloads = listening.encode_notices([*given, Notice("commands")])
    assert sorted(payloads) == ['["commands"]', '["grown","a","b","c"]']
    assert decode_all(payloads) == (Notice("commands"), Notice("grown", ("a", "b", "c")))


def test_a_notice_about_all_is_not_lost_in_one_about_some() -> None:
    given = (Notice("grown"), Notice("grown", ("a",)))
    assert decode_all(listening.encode_notices(given)) == given


@pytest.mark.parametrize("subject", ["run_{}", "\u00e4\0\ud800{}", "x" * 7_000 + "{}"])
def test_long_notices_are_split(subject: str) -> None:
    subjects = tuple(subject.format(number) for number in range(1_500))
    payloads = listening.encode_notices([Notice("grown", subjects)])
    assert all(len(payload.encode()) <= listening.MAX_PAYLOAD for payload in payloads)
    assert len(payloads) <= sum(len(json.dumps(each)) + 1 for each in subjects) // 3_500 + 1
    assert decode_all(payloads) == (Notice("grown", subjects),)


def test_payloads_are_filled_to_the_limit() -> None:
    room = listening.MAX_PAYLOAD - len('["t",""]')
    [payload] = listening.encode_notices([Notice("t", ("x" * room,))])
    assert len(payload) == listening.MAX_PAYLOAD
    subjects = ("a", "x" * (room + 1), "b")
    assert decode_all(listening.encode_notices([Notice("t", subjects)])) == (
        Notice("t"),  # about all, because the long subject fits in no payload
        Notice("t", ("a", "b")),
    )


@pytest.mark.parametrize("payload", ["", "hello", "{}", "[]", "[1]", "null", '["a"'])
def test_a_payload_of_others_may_be_about_anything(payload: str) -> None:
    assert listening.decode_notice(payload) == RECONNECTED


@pytest.mark.parametrize("node", ["n1", "x" * 500, 'Ab"; DROP TABLE runs', "\0\u00e4"])
def test_channels_are_identifiers(node: str) -> None:
    channel = listening.channel_of(node)
    assert channel.isidentifier()
    assert channel == channel.lower()
    assert len(channel) <= 63
    assert channel != listening.channel_of(f"{node}2")


# -- through the database --


async def test_notices_reach_their_node(postgres_url: str) -> None:
    async with open_two(postgres_url) as (first, second):
        assert first.can_listen
        async with receive(first, "n1") as of_first, receive(second, "n2") as of_second:
            await second.notify("n1", [GROWN, Notice("commands")])
            assert await of_first.receive() == (Notice("commands"), GROWN)
            await first.notify("n2", [GROWN])
            await second.notify("n2", [])
            await second.notify("n2", [Notice("own")])
            assert await of_second.receive() == (GROWN,)
            assert await of_second.receive() == (Notice("own"),)


async def test_many_subjects_arrive(postgres_url: str) -> None:
    odd = 'Ab"; \u00e4\0'
    subjects = tuple(f"run_{number:040}" for number in range(2_000))
    arrived: set[str] = set()
    async with open_postgres(postgres_url) as store, receive(store, odd) as received:
        await store.notify(odd, [Notice("grown", subjects)])
        while len(arrived) < len(subjects):
            [notice] = await received.receive()
            arrived.update(notice.subjects)
    assert arrived == set(subjects)


async def test_a_call_sends_one_statement(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[object] = []
    original = PostgresDatabase.autocommit

    def count(self: PostgresDatabase, job: object, **options: object) -> object:
        jobs.append(job)
        return original(self, job, **options)  # type: ignore[arg-type]

    async with open_postgres(postgres_url) as store:
        monkeypatch.setattr(PostgresDatabase, "autocommit", count)
        subjects = tuple(f"run_{number:040}" for number in range(2_000))
        commits = store.commits
        await store.notify("n1", [Notice("grown", subjects), Notice("commands")])
        await store.notify("n1", [])
        assert len(jobs) == 1
        assert store.commits == commits  # not a job of the writer


async def test_waiting_ends_when_the_time_is_over(postgres_url: str) -> None:
    async with open_postgres(postgres_url) as store:
        assert await store.wait_notices("n1", 60) == (RECONNECTED,)
        for seconds in (0.05, 0.0):
            assert await store.wait_notices("n1", seconds) == ()


async def test_a_cancelled_call_loses_no_notices(postgres_url: str) -> None:
    async with open_two(postgres_url) as (first, second):
        assert await first.wait_notices("n1", 60) == (RECONNECTED,)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.wait_notices, "n1", 60)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await second.notify("n1", [GROWN])
        with trio.CancelScope() as scope:
            scope.cancel()
            await first.wait_notices("n1", 60)
        assert scope.cancelled_caught
        with trio.fail_after(10):
            assert await first.wait_notices("n1", 60) == (GROWN,)


async def test_notices_that_arrive_while_none_waits_are_kept(postgres_url: str) -> None:
    async with open_two(postgres_url) as (first, second):
        await first.wait_notices("n1", 60)
        for number in range(20):
            await second.notify("n1", [Notice("grown", (str(number),))])
        arrived: list[str] = []
        while len(arrived) < 20:
            for notice in await first.wait_notices("n1", 10):
                arrived += notice.subjects
        assert arrived == [str(number) for number in range(20)]


@pytest.mark.parametrize("is_waiting", [True, False])
async def test_a_lost_connection_is_replaced_and_reported(
    postgres_server: PostgresServer, postgres_url: str, is_waiting: bool
) -> None:
    async with open_two(postgres_url) as (first, second):
        await first.wait_notices("n1", 60)
        for _ in range(3):
            [before] = listening_processes(postgres_server)
            with trio.fail_after(10):
                if is_waiting:
                    async with receive_next(first, "n1") as arrived:
                        await trio.to_thread.run_sync(cut_listeners, postgres_server)
                    assert arrived == [(RECONNECTED,)]
                else:
                    cut_listeners(postgres_server)
                    await second.notify("n1", [GROWN])  # nobody hears it
                    assert await first.wait_notices("n1", 60) == (RECONNECTED,)
                [after] = listening_processes(postgres_server)
                assert before != after
                await second.notify("n1", [GROWN])
                assert await first.wait_notices("n1", 60) == (GROWN,)


@asynccontextmanager
async def receive_next(store: PostgresStore, node: str) -> AsyncIterator[list[tuple[Notice, ...]]]:
    """Wait for notices during a block, and then until some have arrived."""
    arrived: list[tuple[Notice, ...]] = []

    async def wait() -> None:
        arrived.append(await store.wait_notices(node, 60))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        yield arrived


@pytest.mark.slow
async def test_waiting_fails_while_the_server_is_away() -> None:
    with run_postgres() as server:
        async with open_postgres(server.create_database()) as store:
            await store.wait_notices("n1", 60)
            await trio.to_thread.run_sync(server.stop)
            for _ in range(2):
                with pytest.raises(StoreError, match="cannot be reached"):
                    await store.wait_notices("n1", 60)
            with pytest.raises(StoreError):
                await store.notify("n1", [GROWN])
            await trio.to_thread.run_sync(server.start)
            assert await store.wait_notices("n1", 60) == (RECONNECTED,)


async def test_closing_the_store_ends_waiting_at_once(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    threads = threading.active_count()

    async def wait(store: PostgresStore, node: str) -> None:
        with pytest.raises(StoreError, match="closed"):
            await store.wait_notices(node, 3600)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery, open_postgres(postgres_url) as store:
            for node in ("n1", "n2"):
                await store.wait_notices(node, 60)
                nursery.start_soon(wait, store, node)
            await trio.testing.wait_all_tasks_blocked()
            # Waiting takes no thread.
            assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
            assert store._readers._limiter.borrowed_tokens == 0
    with pytest.raises(StoreError, match="closed"):
        await store.wait_notices("n3", 3600)
    assert listening_processes(postgres_server) == []
    assert threading.active_count() <= threads + 2  # those that Trio keeps for the next call


class SlowDatabase(PostgresDatabase):
    """Opens connections for listening only when it is told to."""

    may_open = threading.Event()
    opened: list[psycopg.Connection]

    def open_connection(self) -> psycopg.Connection:
        """Wait, then open a connection."""
        assert self.may_open.wait(10)
        self.opened.append(super().open_connection())
        return self.opened[-1]


@asynccontextmanager
async def open_slow(url: str) -> AsyncIterator[tuple[PostgresStore, SlowDatabase]]:
    """Open a store that listens only when it is told to."""
    async with open_postgres(url) as store:
        database = store._database
        database.__class__ = SlowDatabase
        assert isinstance(database, SlowDatabase)
        database.may_open, database.opened = threading.Event(), []
        try:
            yield store, database
        finally:
            database.may_open.set()


async def test_a_connection_is_kept_although_its_caller_was_cancelled(postgres_url: str) -> None:
    async with open_slow(postgres_url) as (store, database):
        for _ in range(3):
            assert await store.wait_notices("n1", 0.02) == ()
        database.may_open.set()
        assert await store.wait_notices("n1", 60) == (RECONNECTED,)
        assert len(database.opened) == 1
        await store.notify("n1", [GROWN])
        assert await store.wait_notices("n1", 60) == (GROWN,)


async def test_a_connection_that_is_opened_after_the_end_is_closed(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with open_slow(postgres_url) as (store, database):
        assert await store.wait_notices("n1", 0.02) == ()
        store._listeners.stop()
    assert [driver.closed for driver in database.opened] == [True]


# -- through a pooler --


async def test_through_a_pooler_waiting_only_waits(
    postgres_server: PostgresServer, pgbouncer_url: str, postgres_url: str
) -> None:
    async with open_two(pgbouncer_url, postgres_url) as (pooled, direct):
        assert (pooled.can_listen, direct.can_listen) == (False, True)
        assert await pooled.wait_notices("n1", 0.01) == ()
        async with receive(direct, "n2") as received:
            await pooled.notify("n2", [GROWN])  # does nothing
            await direct.notify("n2", [Notice("own")])
            assert await received.receive() == (Notice("own"),)
        assert listening_processes(postgres_server) != []
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pooled.wait_notices, "n1", 3600)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught


async def test_closing_ends_waiting_through_a_pooler(pgbouncer_url: str) -> None:
    async def wait(store: PostgresStore) -> None:
        with pytest.raises(StoreError, match="closed"):
            await store.wait_notices("n1", 3600)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery, open_postgres(pgbouncer_url) as store:
            nursery.start_soon(wait, store)
            await trio.testing.wait_all_tasks_blocked()
