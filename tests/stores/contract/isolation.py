"""Contract for isolation: every method is tried with another principal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest

from hermes_trio.core.dialects.responses import response_items
from hermes_trio.core.records import (
    EndedRun,
    ItemPage,
    LiveRun,
    NoConversation,
    NoRun,
    Ownership,
    RunPage,
    RunQuery,
)
from hermes_trio.stores.base import Store, StoreError
from tests.stores.helpers import completed_runs
from tests.stores.samples import (
    batch,
    conversation,
    ended,
    header,
    history_texts,
    idempotency_record,
    item,
    item_ids,
    logged_numbers,
    texts_of,
)

DONE = ended("done", conversation="c")
DONE_ITEM = response_items(DONE)[0]["id"]

# What another principal tries with the ids of ann's records, and what it gets.
ATTEMPTS: dict[str, tuple[Callable[[Store, str], Awaitable[Any]], Any]] = {
    "messages": (lambda store, who: store.load_messages(who, "s"), ()),
    "find an ended run": (lambda store, who: store.find_run(who, "done"), NoRun()),
    "find a live run": (lambda store, who: store.find_run(who, "live"), NoRun()),
    "list runs": (lambda store, who: store.list_runs(who, RunQuery()), RunPage((), has_more=False)),
    "read a log": (lambda store, who: store.read_log(who, "live", 0), ()),
    "read an ended log": (lambda store, who: store.read_log(who, "done", 0), ()),
    "history": (lambda store, who: store.load_history(who, "done"), ()),
    "delete a run": (lambda store, who: store.delete_run(who, "done"), False),
    "append to a log": (
        lambda store, who: store.append_log([batch("live", 1, principal=who)]),
        frozenset(),
    ),
    "find a conversation": (lambda store, who: store.find_conversation(who, "c"), NoConversation()),
    "items": (lambda store, who: store.list_items(who, "c"), ItemPage((), has_more=False)),
    "find items": (lambda store, who: store.find_items(who, ["i", DONE_ITEM]), {}),
    "delete a conversation": (lambda store, who: store.delete_conversation(who, "c"), False),
    "delete an item": (lambda store, who: store.delete_item(who, "c", "i"), False),
    "unclaim": (
        lambda store, who: store.release_key(idempotency_record("live", principal=who)),
        None,
    ),
}


def owned_by(who: str, run: EndedRun) -> EndedRun:
    """Return the same run of another principal."""
    return attrs.evolve(run, header=attrs.evolve(run.header, principal=who))


async def populate(store: Store) -> None:
    """Store one record of each kind for ann."""
    await store.claim_key(idempotency_record("live"))
    await store.begin_run(header("live"), Ownership("me"))
    await store.append_log([batch("live", 0)])
    await store.end_run(DONE, [batch("done", 0)], [item("i")])
    await store.save_conversation(conversation(created_at=1.0))


async def assert_intact(store: Store) -> None:
    """Check that nothing of ann's has changed."""
    assert await store.find_run("ann", "live") == LiveRun(header("live"))
    assert await store.find_run("ann", "done") == DONE
    assert await logged_numbers(store, "live") == await logged_numbers(store, "done") == [0]
    assert await completed_runs(store) == ["done"]
    assert await history_texts(store, "done") == texts_of("done")
    assert await store.find_conversation("ann", "c") == conversation(created_at=1.0)
    assert await item_ids(store) == ["i"]
    assert await store.claim_key(idempotency_record("other")) == idempotency_record("live")


class IsolationContract:
    """Isolation between principals."""

    @pytest.mark.parametrize("attempt", list(ATTEMPTS))
    async def test_another_principal_gets_nothing_and_changes_nothing(
        self, store: Store, attempt: str
    ) -> None:
        await populate(store)
        act, answer = ATTEMPTS[attempt]
        for who in ("bob", "", "an", "ann\x00", "ANN", "%"):
            assert await act(store, who) == answer
        await assert_intact(store)

    async def test_another_principals_conversation_cannot_be_extended(self, store: Store) -> None:
        await populate(store)
        with pytest.raises(StoreError, match="no conversation"):
            await store.add_items("bob", "c", [item("x")])
        await assert_intact(store)

    async def test_the_same_ids_of_two_principals_are_independent(self, store: Store) -> None:
        await populate(store)
        await store.begin_run(
            header("live", principal="bob", instructions="bob's"), Ownership("me")
        )
        await store.end_run(
            owned_by("bob", ended("done", conversation="c")),
            [batch("done", 0, 3, "bob")],
            [item("b")],
        )
        await store.save_conversation(conversation(principal="bob"))
        await store.claim_key(idempotency_record("bob's", principal="bob"))
        await assert_intact(store)
        assert await item_ids(store, principal="bob") == ["b"]
        assert await logged_numbers(store, "done", principal="bob") == [0, 1, 2]
        assert await store.delete_run("bob", "done")
        assert await store.delete_conversation("bob", "c")
        await assert_intact(store)

    async def test_a_history_does_not_cross_principals(self, store: Store) -> None:
        await store.end_run(ended("a"))
        await store.end_run(owned_by("bob", ended("b", parent="a")))
        assert await history_texts(store, "b", "bob") == texts_of("b")
        assert await store.delete_run("ann", "a")
        assert await store.load_history("ann", "a") == ()

    async def test_a_history_does_not_pass_through_another_principal(self, store: Store) -> None:
        await store.end_run(owned_by("bob", ended("x")))
        await store.end_run(ended("a", parent="x"))
        await store.end_run(owned_by("bob", ended("b", parent="a")))
        assert await history_texts(store, "b", "bob") == texts_of("b")
