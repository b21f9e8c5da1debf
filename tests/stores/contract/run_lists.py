"""Contract for lists of runs."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import attrs
import pytest

from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.records import (
    ALL_ENDS,
    NEWEST,
    OLDEST,
    EndedRun,
    LiveRun,
    Ownership,
    RunCursor,
    RunEnd,
    RunPage,
    RunQuery,
)
from hermes_trio.stores.base import Store, StoreError
from tests.stores.samples import ODD, RICH_RUN, batch, ended, header

UNSTORED = {"store": False}


def end_of(run: EndedRun) -> RunEnd:
    """Return an ended run as lists contain it."""
    return RunEnd(run.header, run.outcome, run.ended_after)


async def listed(store: Store, **asked: Any) -> str:
    """Return the ids of a page, and a star if there are more."""
    page = await store.list_runs("ann", RunQuery(**asked))
    return "".join(run.header.run_id for run in page.runs) + "*" * page.has_more


async def five(store: Store) -> None:
    """Store runs that began one after the other, two of them at the same time.

    One is in progress.
    """
    for n, run_id in enumerate("abce"):
        await store.end_run(ended(run_id, 1.0 + n - (run_id == "c")))
    await store.begin_run(header("d", 3.0), Ownership("me"))


ASC = {"newest_first": False, "after": OLDEST}
PAGES = [
    ({}, "edcba"), (ASC, "abcde"), ({"limit": 5}, "edcba"), ({"limit": 2}, "ed*"), ({**ASC, "limit": 2}, "ab*"),
    ({"after": RunCursor(2.0, "c")}, "ba"), ({"after": RunCursor(2.0, "b")}, "a"), ({"after": RunCursor(2.5)}, "cba"),
    ({**ASC, "after": RunCursor(2.0, "b")}, "cde"), ({**ASC, "after": RunCursor(2.0)}, "bcde"),
    ({"after": RunCursor(2.0)}, "a"), ({"after": OLDEST}, ""), ({**ASC, "after": NEWEST}, ""),
    ({**ASC, "after": RunCursor(2.0, "c"), "limit": 1}, "d*"), ({"limit": 10**30}, "edcba"),
]  # fmt: skip


class RunListContract:
    """Lists of runs."""

    async def test_nothing_is_an_empty_page(self, store: Store) -> None:
        assert await store.list_runs("ann", RunQuery()) == RunPage((), has_more=False)

    async def test_a_list_omits_the_items_of_a_run(self, store: Store) -> None:
        await store.end_run(RICH_RUN)
        await store.begin_run(
            header("live", 0.5, request={"metadata": {ODD: ODD}}), Ownership("me")
        )
        live = LiveRun(header("live", 0.5, request={"metadata": {ODD: ODD}}))
        assert (await store.list_runs("ann", RunQuery())).runs == (end_of(RICH_RUN), live)

    @pytest.mark.parametrize(("asked", "found"), PAGES)
    async def test_pages(self, store: Store, asked: dict[str, Any], found: str) -> None:
        await five(store)
        assert await listed(store, **asked) == found

    async def test_what_is_not_stored_or_forgotten_is_not_listed(self, store: Store) -> None:
        await five(store)
        await store.end_run(ended("x", 9.0, request=UNSTORED))
        await store.begin_run(header("y", 9.0, request=UNSTORED), Ownership("me"))
        await store.delete_run("ann", "b")
        await store.end_run(ended("f", 9.0, parent="e"))
        await store.delete_run("ann", "e")  # a stub of it stays
        assert await listed(store) == "fdca"
        await store.end_run(ended("y", 9.0, request=UNSTORED))
        assert await listed(store) == "fdca"

    async def test_live_runs_and_kinds_and_sessions(self, store: Store) -> None:
        await five(store)
        await store.end_run(ended("f", 6.0, kind="chat", session_id="t"))
        await store.begin_run(header("g", 7.0, kind="runs", session_id="t"), Ownership("me"))
        moved = ended("h", 8.0, kind="runs")
        await store.end_run(
            attrs.evolve(moved, outcome=attrs.evolve(moved.outcome, session_id="t"))
        )  # it ended there
        assert await listed(store, ends=frozenset()) == "gd"
        assert await listed(store, live=False) == "hfecba"
        assert await listed(store, kinds=frozenset({"chat"})) == "f"
        assert await listed(store, kinds=frozenset({"chat", "runs", "other"})) == "hgf"
        assert await listed(store, session_id="t") == "hgf"
        assert await listed(store, session_id="t", kinds=frozenset({"runs"}), live=False) == "h"
        assert await listed(store, session_id="none") == ""

    async def test_live_runs_that_wait(self, store: Store) -> None:
        await five(store)
        await store.begin_run(header("g", 7.0), Ownership("me"))
        asking = attrs.evolve(batch("g", 0), is_waiting=True)
        await store.append_log([asking, batch("d", 0)])
        await store.append_log([batch("g", 1)])
        assert await listed(store, ends=frozenset(), waiting=True) == "g"
        assert await listed(store, ends=frozenset(), waiting=False) == "d"
        assert await listed(store, waiting=True) == "gecba"
        assert await store.find_run("ann", "g") == LiveRun(header("g", 7.0), is_waiting=True)
        found = (await store.list_runs("ann", RunQuery(ends=frozenset()))).runs
        assert found == (LiveRun(header("g", 7.0), is_waiting=True), LiveRun(header("d", 3.0)))
        await store.append_log([attrs.evolve(batch("g", 2), is_waiting=False)])
        assert await listed(store, ends=frozenset(), waiting=True) == ""
        assert await store.find_run("ann", "g") == LiveRun(header("g", 7.0))

    async def test_a_run_that_ends_keeps_its_position(self, store: Store) -> None:
        await five(store)
        await store.end_run(ended("d", 3.0))
        assert await listed(store, live=False) == "edcba"

    async def test_runs_are_filtered_by_outcome(self, store: Store) -> None:
        ends = list(product(Status, Reason))
        for n, (status, reason) in enumerate(ends):
            await store.end_run(
                attrs.evolve(ended(f"{n:02}", float(n)), outcome=Outcome(status, reason))
            )
        await store.begin_run(header("live"), Ownership("me"))
        for n, end in enumerate(ends):
            assert await listed(store, ends=frozenset({end}), live=False) == f"{n:02}"
        page = await store.list_runs(
            "ann", RunQuery(ends=ALL_ENDS - {ends[0]}, live=False, limit=100)
        )
        assert len(page.runs) == len(ends) - 1

    async def test_ids_that_no_engine_could_compare(self, store: Store) -> None:
        for query in (
            RunQuery(session_id=ODD),
            RunQuery(kinds=frozenset({ODD})),
            RunQuery(RunCursor(1.0, ODD)),
        ):
            with pytest.raises(StoreError, match="Unicode"):
                await store.list_runs("ann", query)

    async def test_a_page_is_bounded_in_size_too(self, store: Store) -> None:
        """The limit is up to the store; all pages together contain every run."""
        noise = [chr(33 + (n * n) % 90) for n in range(3_000_000)]
        for n in range(4):
            await store.end_run(ended(str(n), float(n), instructions="".join(noise[n:])))
        found, after = "", NEWEST
        while page := (await store.list_runs("ann", RunQuery(after))).runs:
            after = RunCursor(page[-1].header.stamp.created_at, page[-1].header.run_id)
            found += "".join(run.header.run_id for run in page)
        assert found == "3210"

    @pytest.mark.parametrize("seed", range(8))
    async def test_all_pages_together_are_the_whole_list(self, store: Store, seed: int) -> None:
        chance = random.Random(seed)
        limit, newest_first = chance.randint(1, 4), chance.random() < 0.5
        began = [(chance.choice([1.0, 2.0, 3.5]), f"run-{n}") for n in range(chance.randint(1, 9))]
        for at, run_id in began:
            await store.end_run(ended(run_id, at))
        found: list[tuple[float, str]] = []
        after, has_more = NEWEST if newest_first else OLDEST, True
        while has_more:
            page = await store.list_runs("ann", RunQuery(after, limit, newest_first))
            found += [(run.header.stamp.created_at, run.header.run_id) for run in page.runs]
            after, has_more = RunCursor(*found[-1]), page.has_more
            assert len(page.runs) <= limit
        assert found == sorted(began, reverse=newest_first)
