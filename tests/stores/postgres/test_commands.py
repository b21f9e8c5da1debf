"""Commands between nodes, and the locks of sessions."""

from __future__ import annotations

import attrs
import pytest
import trio

from hermes_trio.core.records import CommandAnswer, Notice, PurgeResult
from hermes_trio.stores.base import StoreError
from tests.stores.samples import KEEP_ALL, ended
from tests.support.postgres import PostgresServer

pytest.importorskip("psycopg")

from hermes_trio.stores.postgres import PostgresStore, commands, open_postgres
from tests.stores.postgres.cluster import (
    LEASE_SECONDS,
    add_node,
    begin,
    command,
    end_idle_connections,
    open_two,
    receive,
    serve_proxy,
)

PLACES = pytest.mark.parametrize("place", ["postgres_url", "pgbouncer_url"])


# -- commands --


@PLACES
async def test_a_command_is_found_by_the_owner_until_it_is_answered(
    request: pytest.FixtureRequest, place: str
) -> None:
    async with open_two(request.getfixturevalue(place)) as (owner, sender):
        await begin(owner, "r", "n1")
        sent = command("c1", sender="n2")
        await sender.send_command(sent)
        await sender.send_command(sent)  # again, because the acknowledgement was lost
        assert await sender.find_commands("n2") == ()
        for _ in range(2):  # again, because the result was lost
            assert await owner.find_commands("n1") == (sent,)
        assert await sender.find_answer("c1") is None
        first = CommandAnswer(sent, {"resolved": 1, "text": "\ud800 \0"})
        for answer in (first, first, CommandAnswer(sent, {"resolved": 2})):
            await owner.answer_commands([answer])
        assert await owner.find_commands("n1") == ()
        assert await sender.find_answer("c1") == {"resolved": 1, "text": "\ud800 \0"}
        assert await sender.find_answer("other") is None


async def test_commands_are_found_in_order_and_a_bounded_number(postgres_url: str) -> None:
    async with open_postgres(postgres_url) as store:
        await begin(store, "r")
        sent = [command(f"c{number}") for number in range(commands.MAX_FOUND + 2, 0, -1)]
        for each in sent:
            await store.send_command(each)
        found = await store.find_commands("n1")
        assert found == tuple(sent[: commands.MAX_FOUND])
        await store.answer_commands([CommandAnswer(each) for each in found])
        assert await store.find_commands("n1") == tuple(sent[commands.MAX_FOUND :])
        await store.answer_commands([])


async def test_commands_for_runs_that_are_not_in_progress_are_never_found(
    postgres_url: str,
) -> None:
    async with open_postgres(postgres_url) as store:
        await begin(store, "r")
        await store.send_command(command("early"))
        await store.end_run(ended("r"))
        await store.send_command(command("late"))
        await store.send_command(command("nowhere", "unknown"))
        for node in ("n1", ""):
            assert await store.find_commands(node) == ()


async def test_a_run_that_was_taken_over_is_commanded_at_its_new_owner(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with open_postgres(postgres_url) as store:
        await begin(store, "r", "n1")
        await store.send_command(command("c"))
        postgres_server.execute("UPDATE runs SET owner = 'n2', owner_epoch = 1", postgres_url)
        assert await store.find_commands("n1") == ()
        assert await store.find_commands("n2") == (command("c"),)


async def test_an_earlier_version_takes_no_command_that_was_answered(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    """It takes over the run in the meantime, and looks at nothing but this column."""
    async with open_postgres(postgres_url) as store:
        await begin(store, "r")
        await store.send_command(command("c"))
        await store.answer_commands([CommandAnswer(command("c"))])
    assert not postgres_server.execute(
        "SELECT 1 FROM commands WHERE taken_at IS NULL", postgres_url
    )


async def test_a_call_that_is_cut_loses_no_command_and_no_answer(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    """The server has done its part, but the connection is lost before its reply arrives."""
    async with (
        serve_proxy(postgres_server) as proxy,
        open_two(proxy.url(postgres_url), postgres_url) as (owner, sender),
    ):
        await begin(owner, "r")
        assert await owner.find_commands("n1") == ()
        await sender.send_command(command("c"))
        proxy.cut_next_reply()
        assert await owner.find_commands("n1") == (command("c"),)
        proxy.cut_next_reply()
        await owner.answer_commands([CommandAnswer(command("c"), {"a": 1})])
        assert await sender.find_answer("c") == {"a": 1}
        assert proxy.cuts == 2


async def test_a_call_that_is_cancelled_loses_no_command(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    """Its thread goes on, and nobody receives its result."""
    import psycopg  # noqa: PLC0415 - not installed everywhere

    async with open_postgres(postgres_url) as store:
        await begin(store, "r")
        await store.send_command(command("c"))
        with psycopg.connect(postgres_url) as other:
            other.execute("LOCK TABLE commands")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.find_commands, "n1")
                await wait_for_lock(postgres_server)
                nursery.cancel_scope.cancel()
        assert await store.find_commands("n1") == (command("c"),)


async def test_of_concurrent_answers_one_stays(postgres_url: str) -> None:
    async with open_two(postgres_url) as stores:
        await stores[0].send_command(command("c"))
        async with trio.open_nursery() as nursery:
            for number in range(6):
                answer = CommandAnswer(command("c"), {"n": number})
                nursery.start_soon(stores[number % 2].answer_commands, [answer])
        found = await stores[0].find_answer("c")
        assert found in [{"n": number} for number in range(6)]
        assert await stores[1].find_answer("c") == found


async def test_owner_and_sender_are_notified(postgres_url: str) -> None:
    async with open_two(postgres_url) as (owner, sender):
        await begin(owner, "r", "n1")
        async with receive(owner, "n1") as of_owner, receive(sender, "n2") as of_sender:
            sent = command("c", sender="n2")
            await sender.send_command(sent)
            assert await of_owner.receive() == (Notice("commands"),)
            [taken] = await owner.find_commands("n1")
            await owner.answer_commands([CommandAnswer(taken)])
            assert await of_sender.receive() == (Notice("answered", ("c",)),)


async def test_a_command_is_stored_although_nobody_can_be_notified(postgres_url: str) -> None:
    async def fail(node: str, notices: object) -> None:
        raise StoreError("no notices today")

    async with open_postgres(postgres_url) as store:
        await begin(store, "r")
        store.notify = fail  # type: ignore[method-assign]
        await store.send_command(command("c", sender="n2"))
        assert await store.find_commands("n1") == (command("c", sender="n2"),)
        await store.answer_commands([CommandAnswer(command("c", sender="n2"), {"a": 1})])
        assert await store.find_answer("c") == {"a": 1}


async def test_a_command_that_cannot_be_read_does_not_keep_others(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with open_postgres(postgres_url) as store:
        await begin(store, "r")
        for command_id in ("c1", "c2"):
            await store.send_command(command(command_id))
        statement = "UPDATE commands SET arguments = '[' WHERE command_id = 'c1'"
        postgres_server.execute(statement, postgres_url)
        for _ in range(2):
            assert await store.find_commands("n1") == (command("c2"),)
        assert await store.find_answer("c1") == {"error": "the command cannot be read"}


async def test_old_commands_are_purged(postgres_server: PostgresServer, postgres_url: str) -> None:
    async with open_postgres(postgres_url) as store:
        await begin(store, "r")
        await store.send_command(command("old"))
        postgres_server.execute(
            "UPDATE commands SET created_at = created_at - interval '61 min'", postgres_url
        )
        await store.send_command(command("new"))
        assert await store.purge(KEEP_ALL, 2.0) == PurgeResult()
        assert await store.find_commands("n1") == (command("new"),)


async def test_bad_commands_are_refused(postgres_url: str) -> None:
    async with open_postgres(postgres_url) as store:
        with pytest.raises(StoreError, match="not valid Unicode"):
            await store.send_command(command("\ud800"))
        with pytest.raises(StoreError, match="cannot be encoded"):
            await store.send_command(attrs.evolve(command("c"), arguments={"a": object()}))
        with pytest.raises(StoreError, match="cannot be encoded"):
            await store.answer_commands([CommandAnswer(command("c"), {"a": object()})])
    with pytest.raises(StoreError, match="closed"):
        await store.find_commands("n1")


@pytest.mark.parametrize("is_repeatable", [True, False])
async def test_a_connection_lost_while_idle_is_replaced(
    postgres_server: PostgresServer, postgres_url: str, is_repeatable: bool
) -> None:
    """Without executing a statement twice, where that would matter."""
    async with open_postgres(postgres_url) as store:
        await store.send_command(command("c"))
        end_idle_connections(postgres_server)
        if is_repeatable:
            assert await store.find_answer("c") is None
        else:
            assert await store.lock_session("ann", "s", "n1")


async def test_a_statement_that_was_cut_is_not_repeated(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    """The session may be locked: the caller must not be told that another turn has it."""
    async with open_postgres(postgres_url) as store:
        add_node(postgres_server, postgres_url, "n1")
        postgres_server.execute(
            "CREATE OR REPLACE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$",
            postgres_url,
        )
        postgres_server.execute(
            "CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON session_locks DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION cut()",
            postgres_url,
        )
        try:
            with pytest.raises(StoreError):
                await store.lock_session("ann", "s", "n1")
        finally:
            postgres_server.execute("DROP TRIGGER cut ON session_locks", postgres_url)
        await store.unlock_session("ann", "s", "n1")
        assert await store.lock_session("ann", "s", "n1")


# -- locks of sessions --


@PLACES
async def test_a_session_has_one_lock(
    postgres_server: PostgresServer, request: pytest.FixtureRequest, place: str
) -> None:
    url = request.getfixturevalue(place)
    async with open_two(url) as (first, second):
        for node in ("n1", "n2"):
            add_node(postgres_server, url, node)
        assert await first.lock_session("ann", "s", "n1")
        assert not await first.lock_session("ann", "s", "n1")
        assert not await second.lock_session("ann", "s", "n2")
        assert await second.lock_session("ann", "other", "n2")
        assert await second.lock_session("bob", "s", "n2")
        await second.unlock_session("ann", "s", "n2")  # it is not the node's to unlock
        assert not await second.lock_session("ann", "s", "n2")
        await first.unlock_session("ann", "s", "n1")
        await first.unlock_session("ann", "s", "n1")
        assert await second.lock_session("ann", "s", "n2")
        assert not await first.lock_session("ann", "s", "n1")


async def test_the_lock_of_a_dead_node_is_replaced(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with open_two(postgres_url) as (first, second):
        for node in ("n1", "n2"):
            add_node(postgres_server, postgres_url, node)
        assert await first.lock_session("ann", "s", "n1")
        add_node(postgres_server, postgres_url, "n1", LEASE_SECONDS - 3)
        assert not await second.lock_session("ann", "s", "n2")
        add_node(postgres_server, postgres_url, "n1", LEASE_SECONDS + 1)
        assert await second.lock_session("ann", "s", "n2")
        await first.unlock_session("ann", "s", "n1")  # too late
        add_node(postgres_server, postgres_url, "n1")
        assert not await first.lock_session("ann", "s", "n1")
        postgres_server.execute("DELETE FROM nodes WHERE node = 'n2'", postgres_url)
        assert await first.lock_session("ann", "s", "n1")


@pytest.mark.parametrize("left_by", ["", "dead"])
async def test_of_concurrent_locks_one_succeeds(
    postgres_server: PostgresServer, postgres_url: str, left_by: str
) -> None:
    nodes = [f"n{number}" for number in range(6)]
    winners: list[tuple[str, str]] = []

    async def lock(store: PostgresStore, session_id: str, node: str) -> None:
        if await store.lock_session("ann", session_id, node):
            winners.append((session_id, node))

    async with open_two(postgres_url) as stores:
        for node in nodes:
            add_node(postgres_server, postgres_url, node)
        sessions = [f"s{number}" for number in range(40)]
        for session_id in sessions:
            if left_by:
                assert await stores[0].lock_session("ann", session_id, left_by)
        async with trio.open_nursery() as nursery:
            for session_id in sessions:
                for number, node in enumerate(nodes):
                    nursery.start_soon(lock, stores[number % 2], session_id, node)
    assert sorted(session_id for session_id, _ in winners) == sorted(sessions)


async def test_a_lock_taken_meanwhile_by_a_node_that_joined_meanwhile_is_kept(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    """The statement that waits for the lock saw the nodes before it began to wait."""
    import psycopg  # noqa: PLC0415 - not installed everywhere

    async with open_postgres(postgres_url) as store:
        add_node(postgres_server, postgres_url, "n2")
        assert await store.lock_session("ann", "s", "dead")
        with psycopg.connect(postgres_url) as other:
            other.execute("UPDATE session_locks SET node = 'new' WHERE session_id = 's'")
            async with trio.open_nursery() as nursery:
                results: list[bool] = []

                async def lock() -> None:
                    results.append(await store.lock_session("ann", "s", "n2"))

                nursery.start_soon(lock)
                await wait_for_lock(postgres_server)
                add_node(postgres_server, postgres_url, "new")
                other.commit()
        assert results == [False]


async def test_a_cancelled_call_does_not_lock_after_its_caller_has_unlocked(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    """Its thread goes on, and waits for a lock that another transaction is about to give up."""
    import psycopg  # noqa: PLC0415 - not installed everywhere

    with psycopg.connect(postgres_url) as other:
        async with open_postgres(postgres_url) as store:
            other.execute("INSERT INTO session_locks VALUES ('ann', 's', 'n2')")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.lock_session, "ann", "s", "n1")
                await wait_for_lock(postgres_server)
                nursery.cancel_scope.cancel()
            await store.unlock_session("ann", "s", "n1")
            other.rollback()
    assert postgres_server.execute("SELECT * FROM session_locks", postgres_url) == []


async def wait_for_lock(server: PostgresServer) -> None:
    """Return when a statement waits for another transaction."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with trio.fail_after(10):
        while not await trio.to_thread.run_sync(server.execute, waiting):
            await trio.lowlevel.checkpoint()


async def test_locks_that_dead_nodes_left_are_purged(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with open_postgres(postgres_url) as store:
        add_node(postgres_server, postgres_url, "n1")
        assert await store.lock_session("ann", "live", "n1")
        assert await store.lock_session("ann", "left", "n2")
        postgres_server.execute(
            "UPDATE session_locks SET locked_at = locked_at - interval '61 min'", postgres_url
        )
        assert await store.lock_session("ann", "recent", "n2")
        await store.purge(KEEP_ALL, 2.0)
        rows = postgres_server.execute(
            "SELECT session_id FROM session_locks ORDER BY session_id", postgres_url
        )
        assert rows == [("live",), ("recent",)]
