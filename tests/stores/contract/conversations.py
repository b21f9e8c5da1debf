"""Contract for conversations and idempotency keys."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from hermes_trio.core.records import IdempotencyRecord, ItemPage, NoConversation
from hermes_trio.stores.base import Store, StoreError
from tests.stores.samples import ODD, conversation, ended, idempotency_record, item, item_ids

# after, limit, newest first -> what comes, and whether there is more
PAGES = [
    ("", 0, False, "12345", False), ("", 0, True, "54321", False),
    ("", 2, False, "12", True), ("", 2, True, "54", True),
    ("2", 2, False, "34", True), ("2", 3, False, "345", False), ("2", 0, False, "345", False),
    ("4", 3, True, "321", False), ("4", 2, True, "32", True),
    ("5", 2, False, "", False), ("1", 2, True, "", False),
    ("no such", 0, False, "", False), ("no such", 2, True, "", False),
    ("", 5, False, "12345", False), ("", 10**30, False, "12345", False), ("", -1, False, "12345", False),
]  # fmt: skip


class ConversationContract:
    """Conversations and their items."""

    async def test_an_unknown_conversation_is_none(self, store: Store) -> None:
        assert await store.find_conversation("ann", "c") == NoConversation()
        assert await store.list_items("ann", "c") == ItemPage((), has_more=False)
        assert await store.delete_conversation("ann", "c") is False
        assert await store.delete_item("ann", "c", "1") is False
        with pytest.raises(StoreError, match="no conversation 'c'"):
            await store.add_items("ann", "c", [item("1")])

    async def test_a_conversation_is_kept(self, store: Store) -> None:
        await store.save_conversation(conversation())
        assert await store.find_conversation("ann", "c") == conversation()

    async def test_only_its_metadata_changes(self, store: Store) -> None:
        await store.save_conversation(conversation())
        await store.add_items("ann", "c", [item("1")])
        await store.save_conversation(conversation(created_at=9.0, metadata={"a": "b"}))
        assert await store.find_conversation("ann", "c") == conversation(metadata={"a": "b"})
        assert await item_ids(store) == ["1"]

    async def test_items_come_back_as_they_were(self, store: Store) -> None:
        await store.save_conversation(conversation())
        odd = {"id": "x", ODD: [1, None, 2.5, {"deep": ODD}], "huge": 10**30}
        await store.add_items("ann", "c", [odd])
        assert await store.list_items("ann", "c") == ItemPage((odd,), has_more=False)

    async def test_an_item_is_added_once(self, store: Store) -> None:
        await store.save_conversation(conversation())
        await store.add_items("ann", "c", [item("1"), item("2")])
        await store.add_items("ann", "c", [item("2"), item("3"), item("3")])
        await store.end_run(ended("a", conversation="c"), items=[item("1"), item("4")])
        assert await item_ids(store) == ["1", "2", "3", "4"]

    @pytest.mark.parametrize(
        "bad", [{}, {"id": ""}, {"id": 1}, {"id": "\ud800"}, {"id": "x", "y": b""}]
    )
    async def test_a_bad_item_rejects_the_whole_call(
        self, store: Store, bad: dict[str, object]
    ) -> None:
        await store.save_conversation(conversation())
        with pytest.raises(StoreError):
            await store.add_items("ann", "c", [item("1"), bad])
        assert await item_ids(store) == []

    async def test_items_are_paged(self, store: Store) -> None:
        await store.save_conversation(conversation())
        await store.add_items("ann", "c", [item(number) for number in "12345"])
        for after, limit, newest_first, found, has_more in PAGES:
            page = await store.list_items("ann", "c", after, limit, newest_first)
            got = ("".join(each["id"] for each in page.items), page.has_more)
            assert got == (found, has_more), (after, limit, newest_first)

    async def test_an_item_is_deleted(self, store: Store) -> None:
        await store.save_conversation(conversation())
        await store.add_items("ann", "c", [item(number) for number in "123"])
        assert await store.delete_item("ann", "c", "3") is True
        assert await store.delete_item("ann", "c", "3") is False
        assert await store.delete_item("ann", "c", "1") is True
        await store.add_items("ann", "c", [item("4")])
        assert await item_ids(store) == ["2", "4"]

    async def test_a_deleted_conversation_is_gone_with_its_items(self, store: Store) -> None:
        await store.end_run(ended("a", conversation="c"), items=[item("1")])
        assert await store.delete_conversation("ann", "c") is True
        assert await store.find_conversation("ann", "c") == NoConversation()
        assert await store.find_run("ann", "a") == ended("a", conversation="c")
        await store.save_conversation(conversation())
        assert await item_ids(store) == []

    async def test_many_callers_at_once_lose_no_item(self, store: Store) -> None:
        await store.save_conversation(conversation())
        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(
                    store.add_items, "ann", "c", [item(f"{number}a"), item(f"{number}b")]
                )
        ids = await item_ids(store)
        assert sorted(ids) == sorted(f"{number}{side}" for number in range(40) for side in "ab")
        assert [one[:-1] for one in ids[::2]] == [one[:-1] for one in ids[1::2]]

    async def test_ids_outside_unicode_are_refused(self, store: Store) -> None:
        bad = "\ud800"
        for call in (
            partial(store.save_conversation, conversation(bad)),
            partial(store.find_conversation, "ann", bad),
            partial(store.delete_conversation, bad, "c"),
            partial(store.add_items, "ann", bad, []),
            partial(store.list_items, "ann", bad),
            partial(store.list_items, "ann", "c", bad),
            partial(store.delete_item, "ann", "c", bad),
            partial(store.claim_key, idempotency_record(key=bad)),
            partial(store.claim_key, idempotency_record(route=bad)),
            partial(store.release_key, idempotency_record(key=bad)),
        ):
            with pytest.raises(StoreError, match="Unicode"):
                await call()


class IdempotencyContract:
    """Idempotency keys."""

    async def test_the_first_claim_wins(self, store: Store) -> None:
        first, second = (
            idempotency_record("a"),
            idempotency_record("b", fingerprint="other", made_at=2.0),
        )
        assert await store.claim_key(first) == first
        assert await store.claim_key(second) == first
        assert await store.claim_key(first) == first

    async def test_keys_belong_to_a_route_and_a_principal(self, store: Store) -> None:
        claims = [
            idempotency_record("a"),
            idempotency_record("b", route="/v1/runs"),
            idempotency_record("c", principal="bob"),
            idempotency_record("d", key=""),
        ]
        for each in claims:
            assert await store.claim_key(each) == each

    async def test_one_of_many_concurrent_claims_wins(self, store: Store) -> None:
        got: list[IdempotencyRecord] = []
        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(_claim, store, idempotency_record(str(number)), got)
        assert len(got) == 60
        assert len(set(got)) == 1
        assert await store.claim_key(idempotency_record("late")) == got[0]

    async def test_a_key_can_be_released(self, store: Store) -> None:
        await store.claim_key(idempotency_record("a"))
        await store.release_key(idempotency_record("a"))
        await store.release_key(idempotency_record("a"))
        assert await store.claim_key(idempotency_record("b")) == idempotency_record("b")

    async def test_only_the_holder_releases_a_key(self, store: Store) -> None:
        await store.claim_key(idempotency_record("a"))
        for other in (
            idempotency_record("b"),
            idempotency_record("a", principal="bob"),
            idempotency_record("a", key="x"),
            idempotency_record("a", route="x"),
        ):
            await store.release_key(other)
        assert await store.claim_key(idempotency_record("c")) == idempotency_record("a")


async def _claim(store: Store, wanted: IdempotencyRecord, got: list[IdempotencyRecord]) -> None:
    got.append(await store.claim_key(wanted))
