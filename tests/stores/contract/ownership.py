"""Contract for the owners of runs: who may write a run, and taking over the runs of dead nodes."""

from __future__ import annotations

import attrs
import pytest
import trio

from hermes_trio.core.changes import TextAdded
from hermes_trio.core.log_codec import encode_changes
from hermes_trio.core.records import EndedRun, LiveRun, LogBatch, NoRun, Ownership, TakenOverRun
from hermes_trio.stores.base import Store
from tests.stores.helpers import completed_runs
from tests.stores.samples import (
    batch,
    begin_and_log,
    conversation,
    ended,
    header,
    item,
    item_ids,
    logged_numbers,
)

ME, YOU = Ownership("me"), Ownership("you", 1)


class OwnershipContract:
    """Owners of runs. Every node but the caller of ``take_over_runs`` is dead."""

    # -- appending --

    async def test_the_owner_appends(self, store: Store) -> None:
        await store.begin_run(header("a"), ME)
        assert await store.append_log([batch("a", 0), batch("a", 1)], ME) == frozenset()
        assert await store.append_log([batch("a", 2)], ME) == frozenset()
        assert await logged_numbers(store, "a") == [0, 1, 2]

    @pytest.mark.parametrize("writer", [Ownership("other"), Ownership("me", 1)])
    async def test_nobody_else_appends(self, store: Store, writer: Ownership) -> None:
        await store.begin_run(header("a"), ME)
        await store.begin_run(header("b"), writer)
        batches = [batch("a", 0), batch("b", 0), batch("b", 1)]
        assert await store.append_log(batches, writer) == {"a"}
        assert await logged_numbers(store, "a") == []
        assert await logged_numbers(store, "b") == [0, 1]

    async def test_a_former_owner_learns_of_a_run_that_has_ended(self, store: Store) -> None:
        await store.begin_run(header("a"), ME)
        await store.take_over_runs("you")
        assert await store.end_run(ended("a"), [batch("a", 0)], ownership=YOU)
        assert await store.append_log([batch("a", 1)], ME) == {"a"}
        assert await logged_numbers(store, "a") == [0]

    async def test_logs_that_nobody_has_are_dropped(self, store: Store) -> None:
        """Of runs that ended, were deleted, or never began."""
        await store.begin_run(header("a"), ME)
        await store.end_run(ended("a"), ownership=ME)
        await store.begin_run(header("b"), Ownership("other"))
        await store.end_run(ended("b"))
        await store.end_run(ended("c", parent="b"))
        assert await store.delete_run("ann", "b")
        assert await store.append_log([batch(name, 0) for name in "abx"], ME) == frozenset()
        assert [await logged_numbers(store, name) for name in "abx"] == [[], [], []]

    async def test_many_logs_at_once(self, store: Store) -> None:
        names = [f"run-{number}" for number in range(37)]
        async with trio.open_nursery() as nursery:
            for name in names:
                owner = ME if name.endswith("1") else Ownership("other")
                nursery.start_soon(store.begin_run, header(name), owner)
        lost = await store.append_log([batch(name, 0) for name in names], ME)
        assert lost == {name for name in names if not name.endswith("1")}
        for name in names:
            assert await logged_numbers(store, name) == ([] if name in lost else [0])

    @pytest.mark.parametrize("name", ["", "a'b", "\x00", "\x01", "\U0001f600", "x" * 3000])
    async def test_any_text_is_a_name(self, store: Store, name: str) -> None:
        run, owner = header(name, principal=name), Ownership(name or "n")
        body = encode_changes([TextAdded(0, "0")])
        await store.begin_run(run, owner)
        assert await store.append_log([LogBatch(name, name, 0, body, 1)], owner) == frozenset()
        assert await logged_numbers(store, name, principal=name) == [0]
        assert await store.append_log([LogBatch(name, name, 1, body, 1)], ME) == {name}
        assert await store.take_over_runs("next") == (TakenOverRun(run, Ownership("next", 1)),)

    # -- ending --

    async def test_the_owner_ends_a_run_and_may_repeat_that(self, store: Store) -> None:
        await store.begin_run(header("a"), ME)
        assert await store.end_run(ended("a"), [batch("a", 0)], ownership=ME)
        again = attrs.evolve(ended("a"), items=())
        assert await store.end_run(again, [batch("a", 1)], ownership=ME)
        assert await store.find_run("ann", "a") == ended("a")
        assert await logged_numbers(store, "a") == [0]
        assert await completed_runs(store) == ["a"]

    async def test_a_run_that_never_began_has_its_owner(self, store: Store) -> None:
        assert await store.end_run(ended("a"), ownership=ME)
        assert await store.end_run(ended("a"), ownership=ME)
        assert not await store.end_run(ended("a"), ownership=YOU)
        assert await store.find_run("ann", "a") == ended("a")

    @pytest.mark.parametrize("writer", [Ownership("other"), Ownership("me", 1)])
    async def test_nobody_else_ends_a_run(self, store: Store, writer: Ownership) -> None:
        await store.save_conversation(conversation())
        run = ended("a", conversation="c")
        await store.begin_run(run.header, ME)
        assert not await store.end_run(run, [batch("a", 0)], [item("i")], writer)
        assert await store.find_run("ann", "a") == LiveRun(run.header)
        assert await logged_numbers(store, "a") == []
        assert await item_ids(store) == []
        assert await store.load_messages("ann", "s") == ()
        assert await store.end_run(run, [batch("a", 0)], [item("i")], ME)
        assert not await store.end_run(run, ownership=writer)

    async def test_many_ends_at_once_have_their_own_answers(self, store: Store) -> None:
        answers: dict[str, bool] = {}

        async def end(run: EndedRun) -> None:
            answers[run.header.run_id] = await store.end_run(run, ownership=ME)

        names = [f"run-{number}" for number in range(20)]
        for name in names[:10]:
            await store.begin_run(header(name), ME if int(name[4:]) % 2 else YOU)
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(end, ended(name))
        lost = list(names[:10:2])
        assert [name for name in names if not answers[name]] == lost
        assert sorted(await completed_runs(store)) == sorted({*names} - {*lost})

    async def test_a_deleted_run_is_nobodys(self, store: Store) -> None:
        await store.end_run(ended("a"), ownership=YOU)
        await store.end_run(ended("b", parent="a"), ownership=YOU)
        for name in "ab":  # the first leaves a stub
            assert await store.delete_run("ann", name)
            assert await store.end_run(ended(name), ownership=ME)
            assert await store.find_run("ann", name) == NoRun()
        assert await completed_runs(store) == ["a", "b"]

    async def test_without_an_owner_nothing_is_checked(self, store: Store) -> None:
        await begin_and_log(store, "a")
        assert await store.append_log([batch("a", 2)]) == frozenset()
        assert await store.end_run(ended("a"))
        assert await store.end_run(ended("a"))
        assert await logged_numbers(store, "a") == [0, 1, 2]

    # -- taking over --

    async def test_runs_of_dead_nodes_are_taken_over(self, store: Store) -> None:
        headers = [
            header(name, float(9 - number), principal=f"p{name}")
            for number, name in enumerate("abc")
        ]
        for each in headers:
            await store.begin_run(each, ME)
        await store.begin_run(header("d"), Ownership("you"))
        await store.end_run(EndedRun(headers[1], (), ended("b").outcome, 0.5), ownership=ME)
        assert await store.take_over_runs("you") == (
            TakenOverRun(headers[2], YOU),
            TakenOverRun(headers[0], YOU),
        )
        assert await store.take_over_runs("third") == (
            TakenOverRun(header("d"), Ownership("third", 1)),
            TakenOverRun(headers[2], Ownership("third", 2)),
            TakenOverRun(headers[0], Ownership("third", 2)),
        )

    async def test_own_runs_are_not_taken_over(self, store: Store) -> None:
        await store.begin_run(header("a"), ME)
        assert await store.take_over_runs("me") == ()
        assert await store.append_log([batch("a", 0)], ME) == frozenset()

    async def test_a_run_comes_again_until_it_has_ended(self, store: Store) -> None:
        for name in "ab":
            await store.begin_run(header(name), ME)
        taken = await store.take_over_runs("you")
        assert [run.header.run_id for run in taken] == ["a", "b"]
        assert await store.take_over_runs("you") == taken
        assert await store.end_run(ended("a"), ownership=taken[0].ownership)
        assert await store.take_over_runs("you") == taken[1:]
        assert await store.end_run(ended("b"), ownership=taken[1].ownership)
        assert await store.take_over_runs("you") == ()

    async def test_a_former_owner_can_change_nothing(self, store: Store) -> None:
        await store.begin_run(header("a"), ME)
        await store.append_log([batch("a", 0)], ME)
        [taken] = await store.take_over_runs("you")
        assert await store.append_log([batch("a", 1)], ME) == {"a"}
        assert not await store.end_run(ended("a"), [batch("a", 1)], ownership=ME)
        await store.begin_run(header("a"), ME)
        assert await logged_numbers(store, "a") == [0]
        assert await store.end_run(ended("a"), [batch("a", 1, 2)], ownership=taken.ownership)
        assert not await store.end_run(ended("a"), ownership=ME)
        assert await logged_numbers(store, "a") == [0, 1, 2]
        assert await completed_runs(store) == ["a"]

    async def test_a_bounded_number_is_taken_over_at_once(self, store: Store) -> None:
        names = [f"run-{number:03}" for number in range(230)]
        async with trio.open_nursery() as nursery:
            for number, name in enumerate(names):
                nursery.start_soon(store.begin_run, header(name, float(number)), ME)
        seen: list[str] = []
        while taken := await store.take_over_runs("you"):
            assert len(taken) <= 100
            seen += [run.header.run_id for run in taken]
            async with trio.open_nursery() as nursery:
                for run in taken:
                    end = ended(run.header.run_id, run.header.stamp.created_at)
                    nursery.start_soon(store.end_run, end, (), (), run.ownership)
        assert seen == names
