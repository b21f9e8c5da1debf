"""Contract for runs."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import pytest
import trio

from hermes_trio.core.dialects.responses import response_items
from hermes_trio.core.messages import CallItem, MessageItem, transcript
from hermes_trio.core.records import EndedRun, LiveRun, NoConversation, NoRun, Ownership
from hermes_trio.core.state import CallState
from hermes_trio.stores.base import Store, StoreError
from tests.stores.helpers import completed_runs
from tests.stores.samples import (
    COMPLETED,
    RICH,
    RICH_RUN,
    batch,
    conversation,
    ended,
    header,
    item,
    item_ids,
    logged_numbers,
)


class RunContract:
    """Begin, end and find runs."""

    async def test_an_unknown_run_is_none(self, store: Store) -> None:
        assert await store.find_run("ann", "x") == NoRun()
        assert await store.read_log("ann", "x", 0) == ()
        assert await store.load_history("ann", "x") == ()
        assert await store.delete_run("ann", "x") is False

    async def test_a_run_begins_and_ends(self, store: Store) -> None:
        await store.begin_run(RICH_RUN.header, Ownership("me"))
        assert await store.find_run("ann", "rich") == LiveRun(RICH_RUN.header)
        await store.end_run(RICH_RUN)
        assert await store.find_run("ann", "rich") == RICH_RUN

    async def test_a_run_need_not_have_begun(self, store: Store) -> None:
        await store.end_run(RICH_RUN)
        assert await store.find_run("ann", "rich") == RICH_RUN

    async def test_the_latest_run_of_a_conversation(self, store: Store) -> None:
        assert await store.find_latest_run("ann", "c") == NoRun()
        first, second = ended("a", 1.0, conversation="c"), ended("b", 2.0, conversation="c")
        await store.end_run(second)
        await store.end_run(first)
        await store.end_run(ended("other", 3.0))
        assert await store.find_latest_run("ann", "c") == second
        assert await store.find_latest_run("bob", "c") == NoRun()
        await store.delete_run("ann", "b")
        assert await store.find_latest_run("ann", "c") == first
        await store.begin_run(header("live", 4.0, conversation="c"), Ownership("me"))
        assert await store.find_latest_run("ann", "c") == LiveRun(
            header("live", 4.0, conversation="c")
        )

    async def test_items_of_responses_and_conversations_are_found_by_id(self, store: Store) -> None:
        asked = {"id": "in_1", "type": "message", "role": "user", "content": []}
        run = ended("a", input_items=(asked,))
        answer = response_items(run)[-1]
        await store.begin_run(run.header, Ownership("me"))
        assert await store.find_items("ann", ["in_1"]) == {}, "not before the response has ended"
        await store.end_run(run)
        await store.save_conversation(conversation())
        await store.add_items("ann", "c", [item("i")])
        wanted = ["in_1", answer["id"], "i", "unknown"]
        found = await store.find_items("ann", wanted)
        assert found == {"in_1": asked, answer["id"]: answer, "i": item("i")}
        assert answer["content"][0]["text"] == "answer a"
        assert await store.find_items("bob", wanted) == {}
        assert await store.find_items("ann", []) == {}

    async def test_an_item_belongs_to_the_run_that_had_it_first(self, store: Store) -> None:
        first = ended("a")
        answer = response_items(first)[0]
        await store.end_run(first)
        await store.end_run(ended("b", input_items=(answer,)))
        assert await store.find_items("ann", [answer["id"]]) == {answer["id"]: answer}
        assert await store.delete_run("ann", "b")
        assert await store.find_items("ann", [answer["id"]]) == {answer["id"]: answer}
        assert await store.delete_run("ann", "a")
        assert await store.find_items("ann", [answer["id"]]) == {}

    @pytest.mark.parametrize("other", [{"kind": "chat"}, {"request": {"store": False}}])
    async def test_only_stored_responses_have_items(self, store: Store, other: Any) -> None:
        run = ended("a")
        [answer] = response_items(run)
        await store.end_run(attrs.evolve(run, header=attrs.evolve(run.header, **other)))
        assert await store.find_items("ann", [answer["id"]]) == {}

    async def test_messages_go_to_the_session_a_run_ended_in(self, store: Store) -> None:
        await store.end_run(RICH_RUN)
        said = (*RICH, *transcript(RICH_RUN.items))
        assert await store.load_messages("ann", "moved") == said
        assert await store.load_messages("ann", "s") == ()
        assert await store.load_history("ann", "rich") == said

    async def test_a_run_in_progress_adds_nothing_to_its_session(self, store: Store) -> None:
        await store.begin_run(header("a"), Ownership("me"))
        assert await store.load_messages("ann", "s") == ()

    async def test_a_run_ends_once(self, store: Store) -> None:
        first, second = ended("a"), attrs.evolve(ended("a"), items=(MessageItem("other"),))
        await store.end_run(first, [batch("a", 0)])
        changed = attrs.evolve(second.header, session_id="elsewhere", conversation="c")
        await store.end_run(attrs.evolve(second, header=changed), [batch("a", 1)], [item("i")])
        assert await store.find_run("ann", "a") == first
        assert await completed_runs(store) == ["a"]
        assert await store.load_messages("ann", "elsewhere") == ()
        assert await logged_numbers(store, "a") == [0]
        assert await store.find_conversation("ann", "c") == NoConversation()

    async def test_a_run_ends_once_when_asked_at_once(self, store: Store) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(store.end_run, ended("a"))
        assert await completed_runs(store) == ["a"]

    async def test_a_run_begins_once(self, store: Store) -> None:
        await store.begin_run(header("a"), Ownership("me"))
        await store.begin_run(header("a", instructions="other"), Ownership("you"))
        assert await store.find_run("ann", "a") == LiveRun(header("a"))
        assert await store.take_over_runs("me") == ()

    async def test_an_ended_run_does_not_begin_again(self, store: Store) -> None:
        await store.end_run(ended("a"))
        await store.begin_run(header("a"), Ownership("me"))
        assert await store.find_run("ann", "a") == ended("a")

    async def test_a_purged_run_does_not_come_back(self, store: Store) -> None:
        await store.end_run(ended("a"))
        assert await store.delete_run("ann", "a")
        await store.begin_run(header("a"), Ownership("me"))
        await store.end_run(ended("a"))
        assert await store.find_run("ann", "a") == NoRun()
        assert await completed_runs(store) == ["a"]

    async def test_what_a_run_ended_with_is_what_stays(self, store: Store) -> None:
        await store.begin_run(header("a"), Ownership("me"))
        final = attrs.evolve(ended("a"), header=header("a", instructions="known later"))
        await store.end_run(final)
        assert await store.find_run("ann", "a") == final

    async def test_ending_a_run_appends_to_its_conversation(self, store: Store) -> None:
        await store.end_run(ended("a", conversation="c"), items=[item("1"), item("2")])
        await store.end_run(ended("b", conversation="c"), items=[item("3")])
        assert await item_ids(store) == ["1", "2", "3"]

    async def test_ending_a_run_creates_its_conversation(self, store: Store) -> None:
        await store.end_run(ended("a", 7.0, conversation="c"))
        found = await store.find_conversation("ann", "c")
        assert found == conversation(created_at=7.0, metadata={})

    async def test_ending_a_run_keeps_the_metadata_of_its_conversation(self, store: Store) -> None:
        await store.save_conversation(conversation())
        await store.end_run(ended("a", conversation="c"), items=[item("1")])
        assert await store.find_conversation("ann", "c") == conversation()

    @pytest.mark.parametrize(
        "parts", [{"tail": [batch("b", 0)]}, {"items": [item("1")]}, {"items": [{"type": "no id"}]}]
    )
    async def test_parts_that_do_not_belong_together_are_refused(
        self, store: Store, parts: dict[str, Any]
    ) -> None:
        with pytest.raises(StoreError):
            await store.end_run(ended("a"), **parts)
        assert await store.find_run("ann", "a") == NoRun()
        assert await store.load_messages("ann", "s") == ()

    @pytest.mark.parametrize("field", ["principal", "session_id", "parent", "conversation"])
    async def test_an_id_outside_unicode_is_refused(self, store: Store, field: str) -> None:
        bad = header("a", 1.0, **{field: "\ud800"})
        for call in (
            partial(store.begin_run, bad, Ownership("me")),
            partial(store.end_run, EndedRun(bad, (), COMPLETED, 0.0)),
        ):
            with pytest.raises(StoreError, match="Unicode"):
                await call()

    async def test_other_ids_outside_unicode_are_refused(self, store: Store) -> None:
        bad = "\ud800"
        moved = attrs.evolve(ended("a"), outcome=attrs.evolve(COMPLETED, session_id=bad))
        for call in (
            partial(store.begin_run, header(bad), Ownership("me")),
            partial(store.begin_run, header("a"), Ownership(bad)),
            partial(store.end_run, moved),
            partial(store.append_log, [batch(bad, 0)]),
            partial(store.append_log, [batch("a", 0, principal=bad)]),
            partial(store.find_run, "ann", bad),
            partial(store.read_log, "ann", bad, 0),
            partial(store.load_history, "ann", bad),
            partial(store.delete_run, bad, "a"),
            partial(store.take_over_runs, bad),
        ):
            with pytest.raises(StoreError, match="Unicode"):
                await call()

    async def test_what_is_not_json_is_refused_whole(self, store: Store) -> None:
        with pytest.raises(StoreError, match="JSON"):
            await store.begin_run(header("a", request={"a": {1, 2}}), Ownership("me"))
        with pytest.raises(StoreError, match="JSON"):
            await store.end_run(ended("a", conversation="c"), items=[{"id": "1", "x": b""}])
        call = CallItem("c", "add", {"a": {1, 2}}, CallState.COMPLETED, "", False, 0.0)
        with pytest.raises(StoreError, match="JSON"):
            await store.end_run(attrs.evolve(ended("a", conversation="c"), items=(call,)))
        assert await store.find_run("ann", "a") == NoRun()
        assert await store.find_conversation("ann", "c") == NoConversation()
