"""Contract for deletion and retention."""

from __future__ import annotations

import random
import zlib
from typing import Any

import attrs
import trio

from hermes_trio.core.dialects.responses import response_items
from hermes_trio.core.messages import Message
from hermes_trio.core.records import (
    EndedRun,
    LogBatch,
    NoConversation,
    NoRun,
    Ownership,
    OwnerUsage,
    PurgeResult,
    Retention,
)
from hermes_trio.core.sessions import NoSession, Session, SessionFork, SessionQuery
from hermes_trio.stores.base import Store
from tests.stores.helpers import completed_runs
from tests.stores.samples import (
    KEEP_ALL,
    batch,
    begin_and_log,
    conversation,
    end_chain,
    ended,
    header,
    history_texts,
    idempotency_record,
    item,
    item_ids,
    logged_numbers,
    texts_of,
)


async def visible(store: Store, *run_ids: str) -> str:
    """Return which runs exist. Reading marks them as recently used, in this order."""
    return "".join([run_id for run_id in run_ids if await store.find_run("ann", run_id) != NoRun()])


class DeleteContract:
    """Deletion of runs."""

    async def test_what_a_principal_stores(self, store: Store) -> None:
        assert await store.stored_bytes("ann") == 0
        await begin_and_log(store, "a")
        await store.end_run(ended("a", conversation="c"), items=[item("a")])
        size = await store.stored_bytes("ann")
        await store.end_run(ended("b", conversation="c"), items=[item("b")])
        assert 0 < size < await store.stored_bytes("ann")
        assert await store.stored_bytes("bob") == 0
        assert await store.list_usages() == (OwnerUsage("ann", 2, await store.stored_bytes("ann")),)
        for run_id in "ab":
            await store.delete_run("ann", run_id)
        assert 0 < await store.stored_bytes("ann") < size  # the session and the conversation

    async def test_a_deleted_run_is_gone(self, store: Store) -> None:
        await store.claim_key(idempotency_record("a"))
        await begin_and_log(store, "a")
        await store.end_run(ended("a"))
        assert await store.delete_run("ann", "a") is True
        assert await store.delete_run("ann", "a") is False
        assert await store.find_run("ann", "a") == NoRun()
        assert await store.read_log("ann", "a", 0) == ()
        assert await store.load_history("ann", "a") == ()
        assert (await store.claim_key(idempotency_record("b"))).run_id == "b"

    async def test_what_was_said_stays_in_the_session(self, store: Store) -> None:
        for run_id in "abc":
            await store.end_run(ended(run_id, conversation="c"), items=[item(run_id)])
        await store.delete_run("ann", "b")
        assert await completed_runs(store) == ["a", "b", "c"]
        assert await item_ids(store) == ["a", "b", "c"]

    async def test_a_run_in_progress_is_not_deleted(self, store: Store) -> None:
        await begin_and_log(store, "a")
        await store.claim_key(idempotency_record("a"))
        assert await store.delete_run("ann", "a") is False
        assert await logged_numbers(store, "a") == [0, 1]
        assert await store.claim_key(idempotency_record("b")) == idempotency_record("a")

    async def test_what_later_runs_continue_stays_readable_to_them(self, store: Store) -> None:
        await end_chain(store, "a", "b", "c")
        for run_id in "ab":
            assert await store.delete_run("ann", run_id)
        assert await history_texts(store, "c") == texts_of("a", "b", "c")
        assert await visible(store, "a", "b", "c") == "c"

    async def test_a_run_in_progress_keeps_what_it_continues(self, store: Store) -> None:
        await end_chain(store, "a", "b")
        await store.begin_run(header("c", parent="b"), Ownership("me"))
        for run_id in "ba":
            assert await store.delete_run("ann", run_id)
        assert await history_texts(store, "c") == [*texts_of("a", "b"), "ask c"]

    async def test_stubs_are_removed_with_the_last_run_that_needs_them(self, store: Store) -> None:
        await end_chain(store, "a", "b", "c")
        await store.end_run(ended("x", parent="b"))
        for run_id in "abc":
            assert await store.delete_run("ann", run_id)
        assert await history_texts(store, "x") == texts_of("a", "b", "x")
        await store.delete_run("ann", "x")
        for run_id in "abcx":
            assert await store.load_history("ann", run_id) == ()
        assert await completed_runs(store) == ["a", "b", "c", "x"]

    async def test_many_deletions_at_once_have_one_winner(self, store: Store) -> None:
        won: list[bool] = []
        await store.end_run(ended("a"))
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(_delete, store, won)
        assert won.count(True) == 1


async def _delete(store: Store, won: list[bool]) -> None:
    won.append(await store.delete_run("ann", "a"))


class PurgeContract:
    """Purging by age, number and size."""

    async def test_nothing_is_purged_early(self, store: Store) -> None:
        await begin_and_log(store, "live")
        await store.end_run(ended("a", conversation="c"), [batch("a", 0)], [item("1")])
        await store.claim_key(idempotency_record())
        assert await store.purge(KEEP_ALL, 1e8) == PurgeResult()
        assert await visible(store, "a") == "a"

    async def test_a_log_expires_some_time_after_the_end_of_its_run(self, store: Store) -> None:
        retention = attrs.evolve(KEEP_ALL, log_seconds=10.0)
        await store.end_run(
            attrs.evolve(ended("a", 100.0), ended_after=5.0), [batch("a", 0), batch("a", 1)]
        )
        await begin_and_log(store, "live")
        assert await store.purge(retention, 114.9) == PurgeResult()
        assert await logged_numbers(store, "a") == [0, 1]
        assert await store.purge(retention, 115.0) == PurgeResult(logs=1)
        assert await store.purge(retention, 1e8) == PurgeResult()
        assert await logged_numbers(store, "a") == []
        assert await visible(store, "a") == "a"
        assert await logged_numbers(store, "live") == [0, 1]

    async def test_a_log_is_kept_as_long_as_the_idempotency_key(self, store: Store) -> None:
        await store.claim_key(idempotency_record("a", made_at=1000.0))
        await begin_and_log(store, "a")
        await store.end_run(ended("a"))
        retention = attrs.evolve(KEEP_ALL, log_seconds=1.0, idempotency_seconds=500.0)
        assert await store.purge(retention, 1100.0) == PurgeResult()
        assert await logged_numbers(store, "a")
        assert await store.purge(retention, 2000.0) == PurgeResult(logs=1, idempotency_records=1)

    async def test_a_log_written_before_the_end_expires_too(self, store: Store) -> None:
        await begin_and_log(store, "a")
        await store.end_run(ended("a"))
        assert await store.purge(attrs.evolve(KEEP_ALL, log_seconds=10.0), 100.0) == PurgeResult(
            logs=1
        )
        assert await logged_numbers(store, "a") == []

    async def test_a_key_expires_by_age(self, store: Store) -> None:
        retention = attrs.evolve(KEEP_ALL, idempotency_seconds=10.0)
        await store.claim_key(idempotency_record("old", made_at=5.0))
        await store.claim_key(idempotency_record("new", key="other", made_at=6.0))
        assert await store.purge(retention, 15.5) == PurgeResult(idempotency_records=1)
        assert (await store.claim_key(idempotency_record("again"))).run_id == "again"
        assert (await store.claim_key(idempotency_record("again", key="other"))).run_id == "new"

    async def test_the_least_recently_used_runs_are_purged_first(self, store: Store) -> None:
        for number, run_id in enumerate("abcde"):
            await store.end_run(ended(run_id, float(number)))
        assert await visible(store, "b", "a") == "ba"
        retention = attrs.evolve(KEEP_ALL, max_runs=3)
        assert await store.purge(retention, 10.0) == PurgeResult(runs=2)
        assert await store.purge(retention, 10.0) == PurgeResult()
        assert await visible(store, *"abcde") == "abe"
        assert await store.purge(attrs.evolve(KEEP_ALL, max_runs=1), 10.0) == PurgeResult(runs=2)
        assert await visible(store, *"abcde") == "e"

    async def test_an_owner_who_stores_much_loses_only_own_runs(self, store: Store) -> None:
        for number in range(2):
            await store.end_run(ended(f"bob-{number}", 1.0, principal="bob"))  # the oldest of all
        for number, run_id in enumerate("abcdefgh"):
            await store.end_run(ended(run_id, 10.0 + number))
        retention = attrs.evolve(KEEP_ALL, max_runs=5)
        assert await store.purge(retention, 100.0) == PurgeResult(runs=5)
        assert await store.purge(retention, 100.0) == PurgeResult()
        assert await visible(store, *"abcdefgh") == "fgh"
        for number in range(2):
            assert await store.find_run("bob", f"bob-{number}") != NoRun()

    async def test_the_size_of_records_is_shared_alike(self, store: Store) -> None:
        await store.end_run(ended("bob", 1.0, principal="bob"))
        data = [number * 7919 for number in range(3000)]
        for number, run_id in enumerate("abc"):
            await store.end_run(ended(run_id, 10.0 + number, request={"data": data}))
        assert await store.purge(attrs.evolve(KEEP_ALL, max_bytes=10_000), 100.0) == PurgeResult(
            runs=3
        )
        assert await store.find_run("bob", "bob") != NoRun()

    async def test_runs_are_purged_until_their_records_fit(self, store: Store) -> None:
        for number, run_id in enumerate("abc"):
            await store.end_run(ended(run_id, float(number), instructions="x" * 1000))
        large = ended("d", 3.0, request={"data": [number * 7919 for number in range(3000)]})
        await store.end_run(large)
        assert await store.purge(attrs.evolve(KEEP_ALL, max_bytes=10**7), 10.0) == PurgeResult()
        assert await store.purge(attrs.evolve(KEEP_ALL, max_bytes=1), 10.0) == PurgeResult(runs=4)
        assert await visible(store, *"abcd") == ""

    async def test_a_run_in_progress_is_not_purged(self, store: Store) -> None:
        await begin_and_log(store, "live")
        await store.end_run(ended("a"))
        await store.end_run(ended("b"))
        tight = attrs.evolve(KEEP_ALL, max_runs=1, max_bytes=1)
        assert await store.purge(tight, 10.0) == PurgeResult(runs=2)
        assert await visible(store, "live") == "live"

    async def test_a_reference_to_an_item_is_a_use_of_its_run(self, store: Store) -> None:
        for number, run_id in enumerate("abc"):
            await store.end_run(ended(run_id, float(number)))
        [answer] = response_items(ended("a"))
        assert await store.find_items("ann", [answer["id"]]) == {answer["id"]: answer}
        tight = attrs.evolve(KEEP_ALL, max_runs=1)
        assert await store.purge(tight, 10.0) == PurgeResult(runs=2)
        assert await visible(store, *"abc") == "a"
        assert await store.purge(attrs.evolve(KEEP_ALL, max_bytes=1), 10.0) == PurgeResult(runs=1)
        assert await store.find_items("ann", [answer["id"]]) == {}

    async def test_a_purged_run_is_deleted(self, store: Store) -> None:
        await store.claim_key(idempotency_record("a"))
        await end_chain(store, "a", "b", "c")
        tight = attrs.evolve(KEEP_ALL, max_runs=1)
        assert await store.purge(tight, 10.0) == PurgeResult(runs=2)
        assert await visible(store, *"abc") == "c"
        assert await history_texts(store, "c") == texts_of("a", "b", "c")
        assert (await store.claim_key(idempotency_record("x"))).run_id == "x"
        await store.delete_run("ann", "c")
        assert await store.load_history("ann", "a") == ()
        assert await completed_runs(store) == ["a", "b", "c"]

    async def test_a_conversation_is_deleted_with_the_last_of_its_runs(self, store: Store) -> None:
        await store.save_conversation(conversation("without runs"))
        await store.end_run(ended("a", conversation="c"), items=[item("1")])
        await store.end_run(ended("b", conversation="c"), items=[item("2")])
        await store.end_run(ended("d"))
        assert await store.purge(attrs.evolve(KEEP_ALL, max_runs=2), 1e9) == PurgeResult(runs=1)
        assert await item_ids(store) == [
            "1",
            "2",
        ]  # not each item with its run: a turn reads all of them or none
        assert await store.purge(attrs.evolve(KEEP_ALL, max_runs=1), 1e9) == PurgeResult(runs=1)
        assert await store.find_conversation("ann", "c") == NoConversation()
        assert await item_ids(store) == []
        assert await store.find_conversation("ann", "without runs") != NoConversation()


SAID = "x" * 10_000


def large(run_id: str, at: float, /, **changes: Any) -> EndedRun:
    """Return a run with a message of ten kilobytes, in a session of its own unless one is given."""
    session = {"session_id": f"session-{run_id}", **changes}
    return ended(run_id, at, messages=(Message("user", SAID),), **session)


def at_most(size: int) -> Retention:
    """Return a limit on bytes alone."""
    return attrs.evolve(KEEP_ALL, max_bytes=size)


class SizeContract:
    """Purging by the size of everything that an owner stores."""

    async def test_messages_count_and_sessions_go_with_their_runs(self, store: Store) -> None:
        for number in range(9):
            await store.end_run(large(f"{number}", float(number)))
        assert await store.purge(at_most(52_000), 100.0) == PurgeResult(runs=5)
        assert await store.purge(at_most(52_000), 100.0) == PurgeResult()
        assert await visible(store, *"012345678") == "5678"
        page = await store.list_sessions("ann", SessionQuery())
        assert [session.session_id for session in page.sessions] == [
            f"session-{number}" for number in (8, 7, 6, 5)
        ]
        assert await store.load_messages("ann", "session-0") == ()

    async def test_a_session_that_is_too_large_loses_its_first_turns(self, store: Store) -> None:
        for number, run_id in enumerate("abcdef"):
            parent = "abcdef"[number - 1] if number else ""
            await store.end_run(large(run_id, float(number), session_id="s", parent=parent))
        assert await store.purge(at_most(30_000), 100.0) == PurgeResult(runs=4)
        assert await visible(store, *"abcdef") == "ef"
        left = [SAID, "answer e", SAID, "answer f"]
        assert await history_texts(store, "f") == left
        assert [message.content for message in await store.load_messages("ann", "s")] == left
        session = await store.find_session("ann", "s")
        assert isinstance(session, Session)
        assert session.counters.message_count == len(left)
        await store.end_run(large("g", 9.0, session_id="s", parent="f"))
        assert await history_texts(store, "g") == [*left, SAID, "answer g"]

    async def test_a_session_in_use_stays_whole(self, store: Store) -> None:
        await store.end_run(large("a", 1.0, session_id="used"))
        await store.end_run(large("b", 2.0))
        await store.end_run(large("c", 3.0, session_id="used"))
        assert await store.purge(at_most(30_000), 100.0) == PurgeResult(runs=1)
        assert await visible(store, *"abc") == "ac"
        await store.end_run(large("d", 4.0))
        assert await visible(store, "a") == "a"  # a use of the session, too
        assert await store.purge(at_most(30_000), 1e10) == PurgeResult(runs=1)
        assert await visible(store, *"acd") == "ac"

    async def test_sessions_without_runs_count(self, store: Store) -> None:
        await store.end_run(large("a", 1.0, session_id="s"))
        for number in range(4):
            await store.fork_session(SessionFork("ann", "s", f"fork-{number}", "", 2.0 + number))
        await store.delete_run("ann", "a")
        assert await store.purge(attrs.evolve(KEEP_ALL, max_runs=1), 9.0) == PurgeResult()
        assert await store.purge(at_most(25_000), 9.0) == PurgeResult(transcripts=3)
        assert await store.purge(at_most(25_000), 9.0) == PurgeResult()
        page = await store.list_sessions("ann", SessionQuery())
        assert [session.session_id for session in page.sessions] == ["fork-3", "fork-2"]

    async def test_items_of_conversations_count(self, store: Store) -> None:
        items = [{"id": str(number), "text": SAID} for number in range(3)]
        await store.end_run(ended("a", conversation="c"), items=items[:1])
        await store.add_items("ann", "c", items)  # the first is there already
        assert await store.purge(at_most(35_000), 9.0) == PurgeResult()
        assert await store.purge(at_most(30_000), 9.0) == PurgeResult(runs=1)
        assert await store.find_conversation("ann", "c") == NoConversation()

    async def test_a_conversation_without_runs_counts(self, store: Store) -> None:
        await store.save_conversation(conversation())
        await store.add_items(
            "ann", "c", [{"id": str(number), "text": SAID} for number in range(3)]
        )
        await store.delete_item("ann", "c", "1")
        await store.end_run(ended("a", 10.0))
        assert await store.purge(at_most(25_000), 99.0) == PurgeResult()
        assert await store.purge(at_most(20_000), 99.0) == PurgeResult(transcripts=1)
        assert await visible(store, "a") == "a"

    async def test_a_log_counts_until_it_expires(self, store: Store) -> None:
        await begin_and_log(store, "a")
        body = zlib.compress(random.randbytes(20_000))
        await store.append_log([LogBatch("ann", "a", 2, body, 1)])
        await store.end_run(ended("a"), [LogBatch("ann", "a", 3, body, 1)])
        limits = attrs.evolve(at_most(20_000), log_seconds=10.0)
        assert await store.purge(at_most(50_000), 2.0) == PurgeResult()
        assert await store.purge(limits, 100.0) == PurgeResult(logs=1)
        assert await visible(store, "a") == "a"
        await store.end_run(ended("b"), [LogBatch("ann", "b", 0, body, 1)])
        assert await store.purge(attrs.evolve(limits, log_seconds=1e9), 100.0) == PurgeResult(
            runs=1
        )

    async def test_a_run_that_is_not_stored_belongs_to_no_session(self, store: Store) -> None:
        await store.end_run(ended("a", 5.0))
        await store.end_run(ended("x", 1.0, request={"store": False}))
        tight = attrs.evolve(KEEP_ALL, max_runs=1)
        assert await store.purge(tight, 10.0) == PurgeResult(runs=1)
        assert await visible(store, "x", "a") == "a"

    async def test_a_session_with_a_run_in_progress_stays(self, store: Store) -> None:
        await store.end_run(large("a", 1.0, session_id="s"))
        await store.begin_run(header("live"), Ownership("me"))
        assert await store.purge(at_most(1), 10.0) == PurgeResult(runs=1)
        assert await store.purge(at_most(1), 10.0) == PurgeResult()
        assert await store.find_session("ann", "s") != NoSession()
