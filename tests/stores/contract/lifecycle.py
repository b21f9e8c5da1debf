"""Contract for transcripts, closing and durability, whatever the engine.

A test module derives from these classes and provides two fixtures: ``store`` yields an open store,
and ``reopen`` returns a function that opens the same store again, any number of times.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import MappingProxyType
from typing import Any

import attrs
import pytest
import trio

from hermes_trio.core.messages import Message
from hermes_trio.core.records import EndedRun, Ownership, PurgeResult, RunQuery, Stamp
from hermes_trio.stores.base import Store, StoreError
from tests.stores.contract.isolation import assert_intact, populate
from tests.stores.helpers import completed_runs, end_all
from tests.stores.samples import (
    KEEP_ALL,
    RICH,
    batch,
    end_chain,
    ended,
    ended_with_messages,
    header,
    idempotency_record,
    many,
    taken_headers,
)

Reopen = Callable[[], AbstractAsyncContextManager[Store]]


class TranscriptContract:
    """Transcripts, and properties of every call."""

    async def test_an_unknown_session_is_empty(self, store: Store) -> None:
        assert await store.load_messages("ann", "nothing") == ()

    async def test_a_turn_round_trips(self, store: Store) -> None:
        await store.end_run(ended_with_messages("a", *RICH))
        assert await store.load_messages("ann", "s") == RICH

    async def test_turns_follow_each_other(self, store: Store) -> None:
        for run in many(5):
            await store.end_run(run)
        assert await completed_runs(store) == [f"run-{number}" for number in range(5)]

    async def test_a_turn_without_messages_is_saved(self, store: Store) -> None:
        await store.end_run(ended_with_messages("empty"))
        await store.end_run(ended("empty"))
        assert await store.load_messages("ann", "s") == ()

    async def test_a_run_is_saved_once(self, store: Store) -> None:
        await store.end_run(ended("a"))
        await store.end_run(ended("b"))
        await store.end_run(ended_with_messages("a", *RICH, session_id="elsewhere"))
        assert await completed_runs(store) == ["a", "b"]
        assert await store.load_messages("ann", "elsewhere") == ()

    async def test_a_run_is_saved_once_when_asked_at_once(self, store: Store) -> None:
        await end_all(store, [ended("a")] * 20)
        assert await completed_runs(store) == ["a"]

    async def test_sessions_are_independent(self, store: Store) -> None:
        await store.end_run(ended("a", session_id="one"))
        await store.end_run(ended("b", session_id="two"))
        assert await completed_runs(store, "one") == ["a"]
        assert await completed_runs(store, "two") == ["b"]

    async def test_another_principal_sees_nothing(self, store: Store) -> None:
        await store.end_run(ended("a"))
        assert await store.load_messages("bob", "s") == ()
        assert await store.load_messages("", "s") == ()

    async def test_principals_share_no_names(self, store: Store) -> None:
        await store.end_run(ended_with_messages("a", Message("user", "from ann")))
        await store.end_run(ended_with_messages("a", Message("user", "from bob"), principal="bob"))
        assert await store.load_messages("ann", "s") == (Message("user", "from ann"),)
        assert await store.load_messages("bob", "s") == (Message("user", "from bob"),)

    async def test_many_callers_at_once_keep_turns_whole(self, store: Store) -> None:
        await end_all(store, many(60))
        assert sorted(await completed_runs(store)) == sorted(run.header.run_id for run in many(60))

    async def test_reading_beside_writing_sees_whole_turns(self, store: Store) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_all, store, many(40))
            for _ in range(40):
                nursery.start_soon(completed_runs, store)
        assert len(await completed_runs(store)) == 40

    async def test_what_is_acknowledged_is_there(self, store: Store) -> None:
        for run in many(5):
            await store.end_run(run)
            assert (await completed_runs(store))[-1] == run.header.run_id

    @pytest.mark.parametrize(
        "key", ["", "a'b\"", "\x00", "a\x00b", "\U0001f600", "%_*", "x" * 5000]
    )
    async def test_any_text_is_a_key(self, store: Store, key: str) -> None:
        await store.end_run(ended(key, principal=key, session_id=key))
        assert await completed_runs(store, key, key) == [key]
        assert await store.load_messages(key, key + "\x00") == ()

    async def test_a_key_outside_unicode_is_refused(self, store: Store) -> None:
        with pytest.raises(StoreError, match="Unicode"):
            await store.load_messages("ann", "\ud800")
        for bad in (
            ended("\ud800"),
            ended("a", principal="\ud800"),
            ended("a", session_id="\ud800"),
        ):
            with pytest.raises(StoreError, match="Unicode"):
                await store.end_run(bad)

    async def test_a_model_name_outside_unicode_is_accepted(self, store: Store) -> None:
        await store.end_run(ended("a", stamp=Stamp("a", 1.0, "\ud800")))
        assert await completed_runs(store) == ["a"]

    @pytest.mark.parametrize("thing", [b"bytes", {1, 2}, object()], ids=["bytes", "set", "object"])
    async def test_what_is_not_json_is_refused_alone(self, store: Store, thing: Any) -> None:
        bad = ended_with_messages("bad", Message("user", ({"type": "x", "value": thing},)))
        with pytest.raises(StoreError, match="JSON"):
            await store.end_run(bad)
        await store.end_run(ended("good"))
        assert await completed_runs(store) == ["good"]

    async def test_any_mapping_is_a_content_part(self, store: Store) -> None:
        part = MappingProxyType({"type": "text", "deep": MappingProxyType({"a": (1, None, True)})})
        await store.end_run(ended_with_messages("a", Message("user", (part,))))
        [message] = await store.load_messages("ann", "s")
        assert message.content == ({"type": "text", "deep": {"a": [1, None, True]}},)

    async def test_what_was_saved_cannot_be_changed_from_outside(self, store: Store) -> None:
        part = {"type": "text", "text": "before"}
        await store.end_run(ended_with_messages("a", Message("user", (part,))))
        part["text"] = "after"
        assert await store.load_messages("ann", "s") == (
            Message("user", ({"type": "text", "text": "before"},)),
        )

    async def test_a_large_turn(self, store: Store) -> None:
        said = tuple(Message("assistant", "x" * 50_000) for _ in range(40))
        await store.end_run(ended_with_messages("a", *said))
        assert await store.load_messages("ann", "s") == said

    async def test_check_succeeds_and_changes_nothing(self, store: Store) -> None:
        await store.end_run(ended("a"))
        await store.check()
        await store.check()
        assert await completed_runs(store) == ["a"]

    async def test_a_caller_already_cancelled_saves_nothing(self, store: Store) -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await store.end_run(ended("a"))
        assert scope.cancelled_caught
        await store.end_run(ended("b"))  # whatever was asked for before is done by then
        assert await completed_runs(store) == ["b"]

    async def test_a_caller_cancelled_after_any_step_leaves_a_whole_store(
        self, store: Store
    ) -> None:
        for steps in range(12):
            await _cut_after(store, ended(f"cut-{steps}"), steps)
            await store.end_run(ended(f"cut-{steps}"))
        await store.check()
        assert await completed_runs(store) == [f"cut-{steps}" for steps in range(12)]


async def _cut_after(store: Store, run: EndedRun, steps: int) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.end_run, run)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            scope.cancel()


class ClosingContract:
    """Opening and closing a store."""

    async def test_a_closed_store_raises(self, reopen: Reopen) -> None:
        async with reopen() as store:
            await store.end_run(ended("a"))
        for call in (
            store.check,
            partial(store.load_messages, "ann", "s"),
            partial(store.end_run, ended("b")),
            partial(store.begin_run, header("b"), Ownership("me")),
            partial(store.append_log, [batch("b", 0)]),
            partial(store.find_run, "ann", "b"),
            partial(store.list_runs, "ann", RunQuery()),
            partial(store.purge, KEEP_ALL, 1.0),
            partial(store.claim_key, idempotency_record()),
        ):
            with pytest.raises(StoreError, match="closed"):
                await call()

    async def test_an_exception_of_the_caller_is_not_wrapped(self, reopen: Reopen) -> None:
        mistake = KeyError("mine")
        with pytest.raises(KeyError) as caught:
            async with reopen():
                raise mistake
        assert caught.value is mistake
        assert mistake.__context__ is None

    async def test_an_exception_group_of_the_caller_is_not_wrapped(self, reopen: Reopen) -> None:
        mistake = ExceptionGroup("mine", [KeyError(), ValueError()])
        with pytest.RaisesGroup(KeyError, ValueError) as caught:
            async with reopen():
                raise mistake
        # Trio may rebuild a group when it looks through it for cancellations; what is in it stays.
        assert caught.value.message == "mine"
        assert [*map(id, caught.value.exceptions)] == [*map(id, mistake.exceptions)]

    async def test_cancelling_the_task_closes_the_store(self, reopen: Reopen) -> None:
        with trio.CancelScope() as scope:
            async with reopen() as store:
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        with pytest.raises(StoreError, match="closed"):
            await store.check()

    async def test_a_cancelled_task_can_save_a_final_record(self, reopen: Reopen) -> None:
        with trio.CancelScope() as scope:
            async with reopen() as store:
                scope.cancel()
                with trio.fail_after(5, shield=True):
                    await store.end_run(ended_with_messages("a", *RICH))
                    assert await store.load_messages("ann", "s") == RICH


class DurabilityContract:
    """Durability across closing."""

    async def test_turns_survive_closing(self, reopen: Reopen) -> None:
        async with reopen() as store:
            await store.end_run(ended("a"))
        async with reopen() as store:
            await store.end_run(ended("b"))
            await store.end_run(ended("a"))
            assert await completed_runs(store) == ["a", "b"]

    async def test_everything_survives_closing(self, reopen: Reopen) -> None:
        async with reopen() as store:
            await populate(store)
        async with reopen() as store:
            await assert_intact(store)
            assert await taken_headers(store, "next") == [header("live")]

    async def test_what_was_used_last_survives_closing(self, reopen: Reopen) -> None:
        async with reopen() as store:
            await end_chain(store, "a", "b", "c")
            await store.find_run("ann", "a")
        async with reopen() as store:
            assert await store.purge(attrs.evolve(KEEP_ALL, max_runs=1), 10.0) == PurgeResult(
                runs=2
            )
            assert await store.find_run("ann", "a") == ended("a")

    async def test_odd_text_survives_closing(self, reopen: Reopen) -> None:
        async with reopen() as store:
            await store.end_run(ended_with_messages("a", *RICH))
        async with reopen() as store:
            assert await store.load_messages("ann", "s") == RICH

    async def test_final_records_survive_closing(self, reopen: Reopen) -> None:
        with trio.CancelScope() as scope:
            async with reopen() as store:
                scope.cancel()
                with trio.fail_after(5, shield=True):
                    await store.end_run(ended("a"))
        async with reopen() as store:
            assert await completed_runs(store) == ["a"]
