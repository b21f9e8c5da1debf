"""Contract for logs and histories of runs."""

from __future__ import annotations

from random import Random
from zlib import compress

import attrs

from hermes_trio.core.messages import Message
from hermes_trio.core.records import LogBatch, Ownership
from hermes_trio.stores.base import Store
from tests.stores.samples import (
    RICH,
    batch,
    begin_and_log,
    end_chain,
    ended,
    header,
    history_texts,
    logged_numbers,
    texts_of,
)


class LogContract:
    """The log of a run."""

    async def test_a_log_is_read_from_any_number(self, store: Store) -> None:
        await store.begin_run(header("a"), Ownership("me"))
        await store.append_log([batch("a", 0, 3), batch("a", 3, 1)])
        await store.append_log([batch("a", 4, 5)])
        assert await logged_numbers(store, "a") == [*range(9)]
        assert [each.first for each in await store.read_log("ann", "a", 2)] == [0, 3, 4]
        assert [each.first for each in await store.read_log("ann", "a", 3)] == [3, 4]
        assert await store.read_log("ann", "a", 8) == (batch("a", 4, 5),)
        for beyond in (9, 10**30):
            assert await store.read_log("ann", "a", beyond) == ()
        assert len(await store.read_log("ann", "a", -1)) == 3

    async def test_a_batch_is_written_once(self, store: Store) -> None:
        await store.begin_run(header("a"), Ownership("me"))
        for _ in range(3):
            await store.append_log([batch("a", 0, 2), batch("a", 2)])
        assert await logged_numbers(store, "a") == [0, 1, 2]

    async def test_a_batch_repeated_with_more_in_it_is_not_cut_short(self, store: Store) -> None:
        await store.begin_run(header("a"), Ownership("me"))
        await store.append_log([batch("a", 0, 2)])
        await store.append_log([batch("a", 0, 3)])
        await store.append_log([batch("a", 0, 1)])
        assert await logged_numbers(store, "a") == [0, 1, 2]
        await store.end_run(ended("a"), [batch("a", 0, 5)])
        assert await logged_numbers(store, "a") == [0, 1, 2, 3, 4]

    async def test_many_logs_at_once(self, store: Store) -> None:
        for run_id in "ab":
            await store.begin_run(header(run_id), Ownership("me"))
        await store.append_log(
            [batch("a", 0), batch("b", 0), batch("none", 0), batch("a", 1), batch("b", 1, 3)]
        )
        assert await logged_numbers(store, "a") == [0, 1]
        assert await logged_numbers(store, "b") == [0, 1, 2, 3]
        assert await logged_numbers(store, "none") == []

    async def test_appending_no_batches_does_nothing(self, store: Store) -> None:
        await store.append_log([])

    async def test_a_tail_completes_the_log(self, store: Store) -> None:
        await begin_and_log(store, "a", 2)
        await store.end_run(ended("a"), [batch("a", 1), batch("a", 2, 2)])
        assert await logged_numbers(store, "a") == [0, 1, 2, 3]

    async def test_a_late_batch_of_an_ended_run_is_dropped(self, store: Store) -> None:
        await store.end_run(ended("a"), [batch("a", 0)])
        await store.append_log([batch("a", 1)])
        assert await logged_numbers(store, "a") == [0]

    async def test_a_log_is_read_in_pages(self, store: Store) -> None:
        await begin_and_log(store, "a", 300)
        assert len(await store.read_log("ann", "a", 0)) < 300
        assert await logged_numbers(store, "a") == [*range(300)]
        assert await logged_numbers(store, "a", 123) == [*range(123, 300)]

    async def test_a_page_is_bounded_in_bytes_and_never_empty(self, store: Store) -> None:
        random = Random(1)
        large = [
            LogBatch("ann", "a", n, compress(random.randbytes(size)), 1)
            for n, size in enumerate([10, 3_000_000, 400_000, 400_000, 400_000, 400_000])
        ]
        await store.begin_run(header("a"), Ownership("me"))
        await store.append_log(large)
        assert await store.read_log("ann", "a", 1) == (large[1],)
        assert 1 < len(await store.read_log("ann", "a", 2)) < 4


class HistoryContract:
    """The history of a run."""

    async def test_a_history_starts_with_the_oldest_run(self, store: Store) -> None:
        await end_chain(store, "a", "b", "c")
        assert await history_texts(store, "c") == texts_of("a", "b", "c")
        assert await history_texts(store, "a") == texts_of("a")

    async def test_each_branch_has_its_own_history(self, store: Store) -> None:
        await end_chain(store, "a", "b")
        await store.end_run(ended("x", parent="a"))
        assert await history_texts(store, "x") == texts_of("a", "x")
        assert await history_texts(store, "b") == texts_of("a", "b")

    async def test_a_history_may_span_sessions(self, store: Store) -> None:
        await store.end_run(ended("a", session_id="one"))
        await store.end_run(ended("b", session_id="two", parent="a"))
        await store.end_run(ended("c", session_id="one", parent="b"))
        assert await history_texts(store, "c") == texts_of("a", "b", "c")

    async def test_the_history_of_a_run_in_progress_has_the_clients_messages(
        self, store: Store
    ) -> None:
        await store.end_run(ended("a"))
        await store.begin_run(header("b", parent="a", messages=RICH), Ownership("me"))
        await store.begin_run(header("c", parent="b"), Ownership("me"))
        assert await store.load_history("ann", "c") == (
            Message("user", "ask a"),
            Message("assistant", "answer a"),
            *RICH,
            Message("user", "ask c"),
        )

    async def test_a_missing_parent_adds_no_history(self, store: Store) -> None:
        await store.end_run(ended("b", parent="never"))
        assert await history_texts(store, "b") == texts_of("b")

    async def test_a_run_without_messages_is_skipped(self, store: Store) -> None:
        await store.end_run(ended("a"))
        await store.end_run(attrs.evolve(ended("b", parent="a", messages=()), items=()))
        await store.end_run(ended("c", parent="b"))
        assert await history_texts(store, "c") == texts_of("a", "c")

    async def test_a_cycle_of_parents_ends(self, store: Store) -> None:
        await store.end_run(ended("a", parent="b"))
        await store.end_run(ended("b", parent="a"))
        await store.end_run(ended("self", parent="self"))
        assert sorted(await history_texts(store, "a")) == sorted(texts_of("a", "b"))
        assert await history_texts(store, "self") == texts_of("self")
        assert await store.delete_run("ann", "self")
        assert await store.load_history("ann", "self") == ()

    async def test_the_empty_id_is_no_parent(self, store: Store) -> None:
        await store.end_run(ended(""))
        await store.end_run(ended("a"))
        assert await history_texts(store, "a") == texts_of("a")
        assert await store.delete_run("ann", "")
        assert await store.load_history("ann", "") == ()

    async def test_a_long_chain(self, store: Store) -> None:
        names = [f"run-{number}" for number in range(150)]
        await end_chain(store, *names)
        assert await history_texts(store, names[-1]) == texts_of(*names)
