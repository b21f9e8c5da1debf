"""Each thing is visible only to the principal that made it: every method is tried by somebody else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest

from hermes_trio.core.records import EndedRun, ItemPage, LiveRun, NoConversation, NoRun, RunPage, RunQuery
from hermes_trio.stores.base import Store, StoreError
from tests.stores.helpers import runs_of
from tests.stores.samples import (
    batch,
    claim,
    conversation,
    ended,
    header,
    item,
    item_ids,
    logged,
    told,
    words,
)

# What somebody else does with the names of ann's things, and what they get.
ATTEMPTS: dict[str, tuple[Callable[[Store, str], Awaitable[Any]], Any]] = {
    "messages": (lambda store, who: store.load_messages(who, "s"), ()),
    "find an ended run": (lambda store, who: store.find_run(who, "done"), NoRun()),
    "find a live run": (lambda store, who: store.find_run(who, "live"), NoRun()),
    "list runs": (lambda store, who: store.list_runs(who, RunQuery()), RunPage((), has_more=False)),
    "read a log": (lambda store, who: store.read_log(who, "live", 0), ()),
    "read an ended log": (lambda store, who: store.read_log(who, "done", 0), ()),
    "history": (lambda store, who: store.load_history(who, "done"), ()),
    "delete a run": (lambda store, who: store.delete_run(who, "done"), False),
    "append to a log": (lambda store, who: store.append_log([batch("live", 1, principal=who)]), None),
    "find a conversation": (lambda store, who: store.find_conversation(who, "c"), NoConversation()),
    "items": (lambda store, who: store.list_items(who, "c"), ItemPage((), has_more=False)),
    "delete a conversation": (lambda store, who: store.delete_conversation(who, "c"), False),
    "delete an item": (lambda store, who: store.delete_item(who, "c", "i"), False),
    "unclaim": (lambda store, who: store.release_key(claim("live", principal=who)), None),
}


def of(who: str, run: EndedRun) -> EndedRun:
    """The same run, but somebody else's."""
    return attrs.evolve(run, header=attrs.evolve(run.header, principal=who))


DONE = ended("done", conversation="c")


async def furnish(store: Store) -> None:
    """All of ann's things."""
    await store.claim_key(claim("live"))
    await store.begin_run(header("live"), "me")
    await store.append_log([batch("live", 0)])
    await store.end_run(DONE, [batch("done", 0)], [item("i")])
    await store.save_conversation(conversation(created_at=1.0))


async def check_all_is_there(store: Store) -> None:
    """Nothing of ann's was touched."""
    assert await store.find_run("ann", "live") == LiveRun(header("live"))
    assert await store.find_run("ann", "done") == DONE
    assert await logged(store, "live") == await logged(store, "done") == [0]
    assert await runs_of(store) == ["done"]
    assert await told(store, "done") == words("done")
    assert await store.find_conversation("ann", "c") == conversation(created_at=1.0)
    assert await item_ids(store) == ["i"]
    assert await store.claim_key(claim("other")) == claim("live")


class IsolationContract:
    """Of what is somebody else's."""

    @pytest.mark.parametrize("attempt", list(ATTEMPTS))
    async def test_somebody_else_gets_nothing_and_changes_nothing(self, store: Store, attempt: str) -> None:
        await furnish(store)
        act, answer = ATTEMPTS[attempt]
        for who in ("bob", "", "an", "ann\x00", "ANN", "%"):
            assert await act(store, who) == answer
        await check_all_is_there(store)

    async def test_nobody_adds_to_anothers_conversation(self, store: Store) -> None:
        await furnish(store)
        with pytest.raises(StoreError, match="no conversation"):
            await store.add_items("bob", "c", [item("x")])
        await check_all_is_there(store)

    async def test_the_same_names_are_other_things(self, store: Store) -> None:
        await furnish(store)
        await store.begin_run(header("live", principal="bob", instructions="bob's"), "me")
        await store.end_run(
            of("bob", ended("done", conversation="c")), [batch("done", 0, 3, "bob")], [item("b")]
        )
        await store.save_conversation(conversation(principal="bob"))
        await store.claim_key(claim("bob's", principal="bob"))
        await check_all_is_there(store)
        assert await item_ids(store, principal="bob") == ["b"]
        assert await logged(store, "done", principal="bob") == [0, 1, 2]
        assert await store.delete_run("bob", "done")
        assert await store.delete_conversation("bob", "c")
        await check_all_is_there(store)

    async def test_a_chain_does_not_cross_to_another(self, store: Store) -> None:
        await store.end_run(ended("a"))
        await store.end_run(of("bob", ended("b", parent="a")))
        assert await told(store, "b", "bob") == words("b")
        assert await store.delete_run("ann", "a")
        assert await store.load_history("ann", "a") == ()

    async def test_a_chain_does_not_go_through_another(self, store: Store) -> None:
        await store.end_run(of("bob", ended("x")))
        await store.end_run(ended("a", parent="x"))
        await store.end_run(of("bob", ended("b", parent="a")))
        assert await told(store, "b", "bob") == words("b")
