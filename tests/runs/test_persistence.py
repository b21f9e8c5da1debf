"""Logs on their way to the store: together, in time, again if need be, and never after the end."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.changes import Change, Ended, TextAdded
from hermes_trio.core.dialects.responses import ResponsesStream
from hermes_trio.core.events import Event, Reasoning, Text
from hermes_trio.core.log_codec import decode_changes, encode_changes
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.records import EndedRun, LiveRun, NoRun
from hermes_trio.runs import log as run_log
from hermes_trio.runs import persistence
from hermes_trio.runs.disconnects import DETACH
from hermes_trio.runs.log import (
    MAX_INLINE_CHARS,
    MAX_UNSAVED,
    MEMORY_WINDOW,
    RunLog,
    load_changes,
)
from hermes_trio.runs.persistence import (
    FLUSH_SECONDS,
    RETRY_SECONDS,
    LogFlusher,
    RetryQueue,
    UnsavedEnd,
    UnsavedLog,
)
from hermes_trio.runs.supervisor import attach
from hermes_trio.stores.sqlite import MemoryStore
from tests.runs.supervisor_harness import (
    BlockableStore,
    header_of,
    open_supervisor_harness,
    read_all,
)
from tests.support.run_harness import EventReplayAgent

SAID: list[Event] = [Text("one "), Text("two")]


async def nothing(first: int) -> tuple[()]:
    return ()


def kept_log(flusher: LogFlusher, run_id: str) -> UnsavedLog:
    """A log that tells the flusher when it grows, as that of a run does."""
    changes = RunLog(nothing)
    changes.on_append(lambda: flusher.mark_dirty(kept))
    kept = UnsavedLog(header_of(run_id), changes)
    return kept


def words(*texts: str) -> tuple[TextAdded, ...]:
    return tuple(TextAdded(0, text) for text in texts)


def text_of(changes: Iterable[Change]) -> str:
    return "".join(change.text for change in changes if isinstance(change, TextAdded))


async def test_many_runs_are_one_write(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    store = BlockableStore()
    flusher = LogFlusher(store)
    logs = [kept_log(flusher, f"run-{number}") for number in range(100)]
    nursery.start_soon(flusher.run)
    await wait_all_tasks_blocked()
    for kept in logs:
        kept.changes.append(words("a", "b"))
        kept.changes.append(words("c"))
    await trio.sleep(1)
    [batches] = store.of("append")
    assert sorted(batch.run_id for batch in batches) == sorted(kept.header.run_id for kept in logs)
    assert {(batch.first, batch.count) for batch in batches} == {(0, 3)}


async def test_nothing_waits_longer_than_an_interval(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """What a crash can take with it.

    The changes of one interval, and those of the write under way.
    """
    store = BlockableStore()
    flusher = LogFlusher(store)
    kept = kept_log(flusher, "run-1")
    nursery.start_soon(flusher.run)
    begun = trio.current_time()
    for number in range(500):
        kept.changes.append(words(str(number)))
        await trio.sleep(0.001)
        saved = sum(batch.count for batches in store.of("append") for batch in batches)
        assert trio.current_time() - (begun + 0.001 * saved) <= FLUSH_SECONDS + 0.002


async def test_what_the_store_refused_is_written_later_and_once(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    store = BlockableStore()
    store.broken.add("append")
    flusher = LogFlusher(store)
    kept = kept_log(flusher, "run-1")
    nursery.start_soon(flusher.run)
    kept.changes.append(words("a"))
    await trio.sleep(FLUSH_SECONDS + RETRY_SECONDS / 2)
    kept.changes.append(words("b"))
    store.broken.clear()
    await trio.sleep(2 * RETRY_SECONDS)
    kept.changes.append(words("c"))
    await trio.sleep(2 * RETRY_SECONDS)
    [[first], [second]] = store.of("append")
    assert decode_changes(first.body) + decode_changes(second.body) == words("a", "b", "c")
    assert (first.first, second.first) == (0, 2)


async def test_a_retry_keeps_no_end_waiting(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    store = BlockableStore()
    store.broken.add("append")
    flusher = LogFlusher(store)
    kept = kept_log(flusher, "run-1")
    nursery.start_soon(flusher.run)
    kept.changes.append(words("a"))
    await trio.sleep(FLUSH_SECONDS + RETRY_SECONDS / 2)
    with trio.fail_after(RETRY_SECONDS / 10):
        await kept.wait_flushed()


@pytest.mark.parametrize("size", [1, MAX_INLINE_CHARS + 1])
async def test_long_texts_are_encoded_in_a_thread(
    size: int, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is appended meanwhile is in the next write."""
    threads = []

    def encode(changes: Iterable[Change]) -> bytes:
        threads.append(threading.current_thread())
        return encode_changes(changes)

    monkeypatch.setattr(persistence, "encode_changes", encode)
    store = BlockableStore()
    flusher = LogFlusher(store, interval=0.0)
    kept = kept_log(flusher, "run-1")
    nursery.start_soon(flusher.run)
    kept.changes.append(words("a" * size))
    with trio.fail_after(10):
        while not threads:
            await trio.lowlevel.checkpoint()
        kept.changes.append(words("b"))
        while len(store.of("append")) < 2:
            await trio.lowlevel.checkpoint()
    [[first], [second]] = store.of("append")
    assert decode_changes(first.body) + decode_changes(second.body) == words("a" * size, "b")
    assert (first.first, second.first) == (0, 1)
    assert (threads[0] is threading.current_thread()) == (size == 1)


async def test_the_end_waits_for_a_write_under_way() -> None:
    store, agent = BlockableStore(), EventReplayAgent(SAID, holds=True)
    store.blocked["append"] = trio.Event()
    async with open_supervisor_harness(agent, store, interval=0.0) as harness:
        run, _ = await harness.supervisor.start(harness.make_spec())
        await agent.said_all.wait()
        await wait_all_tasks_blocked()
        agent.may_end.set()
        await wait_all_tasks_blocked(0.05)
        assert store.calls == ["begin", "append"]
        store.blocked["append"].set()
        await run.ended.wait()
        [[batch]], [[tail]] = store.of("append"), store.of("end")
        assert tail.first == batch.count
        assert text_of(await harness.logged()) == "one two"


async def test_nothing_is_written_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even when the write that the end waited for failed, and would be tried again."""
    monkeypatch.setattr(persistence, "RETRY_SECONDS", 0.0)
    store, agent = BlockableStore(), EventReplayAgent(SAID, holds=True)
    store.blocked["append"] = trio.Event()
    store.broken.add("append")
    async with open_supervisor_harness(agent, store, interval=0.0) as harness:
        run, _ = await harness.supervisor.start(harness.make_spec())
        await agent.said_all.wait()
        await wait_all_tasks_blocked()
        agent.may_end.set()
        await wait_all_tasks_blocked()
        store.blocked["append"].set()
        await run.ended.wait()
        store.broken.clear()
        harness.services.flusher.mark_dirty(run._unsaved_log)
        await wait_all_tasks_blocked()
        assert store.calls == ["begin", "append", "end"]
        assert isinstance((await harness.logged())[-1], Ended)


async def test_an_end_that_the_store_refused_is_saved_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(persistence, "RETRY_SECONDS", 0.0)
    store, agent = BlockableStore(), EventReplayAgent(SAID)
    store.broken.add("end")
    async with open_supervisor_harness(agent, store, interval=0.0) as harness:
        run, ticket = await harness.supervisor.start(harness.make_spec())
        async with attach(run, ticket) as reader:
            heard = await read_all(reader)
        await run.ended.wait()
        assert isinstance(heard[-1], Ended)
        assert heard[-1].outcome.failure.kind == "store_error"
        assert isinstance(await harness.record(), LiveRun)
        store.broken.clear()
        with trio.fail_after(5):
            while not isinstance(record := await harness.record(), EndedRun):
                await trio.lowlevel.checkpoint()
        assert record.outcome == heard[-1].outcome
        assert (record.outcome.status, record.outcome.reason) == (
            Status.FAILED,
            Reason.SERVER_ERROR,
        )
        assert await harness.logged() == heard


async def test_an_end_that_cannot_be_saved_is_given_up(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """And keeps no other from being saved."""
    store = BlockableStore()
    flusher = LogFlusher(store)
    nursery.start_soon(flusher.run)
    outcome = Outcome.from_cancellation(Reason.SERVER_ERROR)
    bad, good = (UnsavedEnd(EndedRun(header_of(name), (), outcome, 0.0), (), ()) for name in "ab")
    bad.items = ({"no": "id"},)
    bad.ended = EndedRun(header_of("a", conversation="talk"), (), outcome, 0.0)
    flusher.ends.enqueue(bad)
    flusher.ends.enqueue(good)
    await trio.sleep(1.5 * RETRY_SECONDS)
    assert isinstance(await store.find_run("ann", "b"), EndedRun)
    await trio.sleep(2 * persistence.MAX_ATTEMPTS * RETRY_SECONDS)
    assert bad.attempts == persistence.MAX_ATTEMPTS
    assert isinstance(await store.find_run("ann", "a"), NoRun)


async def test_a_log_that_cannot_be_written_does_not_stop_the_others(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    store = BlockableStore()
    flusher = LogFlusher(store)
    bad, good = kept_log(flusher, "bad"), kept_log(flusher, "good")
    nursery.start_soon(flusher.run)
    bad.changes.append((TextAdded(0, cast("str", object())),))
    good.changes.append(words("a"))
    await trio.sleep(1)
    good.changes.append(words("b"))
    await trio.sleep(1)
    assert [batch.run_id for batches in store.of("append") for batch in batches] == ["good", "good"]


async def test_memory_is_bounded_when_the_store_keeps_up(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    flusher = LogFlusher(BlockableStore())
    kept = kept_log(flusher, "run-1")
    nursery.start_soon(flusher.run)
    for number in range(100):
        kept.changes.append(words(*map(str, range(1000))))
        await kept.changes.wait_writable()
        assert len(kept.changes._changes) <= MAX_UNSAVED + 2 * MEMORY_WINDOW, number
    await trio.sleep(1)
    assert len(kept.changes._changes) < 2 * MEMORY_WINDOW
    assert kept.changes.end == 100_000


async def test_a_store_that_does_not_keep_up_holds_the_agent_back(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    store = BlockableStore()
    store.blocked["append"] = trio.Event()
    flusher = LogFlusher(store)
    kept = kept_log(flusher, "run-1")
    nursery.start_soon(flusher.run)
    kept.changes.append(words(*map(str, range(MAX_UNSAVED + 1))))
    with trio.move_on_after(1000) as patience:
        await kept.changes.wait_writable()
    assert patience.cancelled_caught
    store.blocked["append"].set()
    with trio.fail_after(1):
        await kept.changes.wait_writable()


async def test_a_laggard_reads_the_same_bytes_from_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_log, "MEMORY_WINDOW", 100)
    agent = EventReplayAgent([Text(f"{n} ") if n % 2 else Reasoning(f"{n} ") for n in range(1000)])
    async with open_supervisor_harness(agent, interval=0.0) as harness:
        run, _ = await harness.supervisor.start(harness.make_spec(policy=DETACH))
        with run.log.subscribe(applies_backpressure=True) as prompt, run.log.subscribe() as late:
            in_time = [change async for batch in prompt for change in batch]
            await run.ended.wait()
            assert len(in_time) == 1001
            assert late.position < run.log.base
            too_late = await read_all(late)
        assert _bytes(in_time) == _bytes(too_late) == _bytes(await harness.logged())


def _bytes(changes: list[Change]) -> bytes:
    return ResponsesStream(header_of("run-1")).render(changes)


async def test_of_what_the_store_never_heard_only_so_much_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(persistence, "MAX_NEW_ENDS", 1)
    ends = RetryQueue(MemoryStore())
    outcome = Outcome.from_cancellation(Reason.SERVER_ERROR)
    for name, has_begun in (("a", False), ("b", False), ("c", True)):
        ends.enqueue(UnsavedEnd(EndedRun(header_of(name), (), outcome, 0.0), (), (), has_begun))
    assert [each.ended.header.run_id for each in ends._queue] == ["a", "c"]


# Strict: first the store, then the clients.


async def test_a_strict_run_sends_nothing_that_the_store_does_not_have() -> None:
    store, agent = BlockableStore(), EventReplayAgent([Text(f"{n} ") for n in range(200)])
    async with open_supervisor_harness(agent, store, is_strict=True) as harness:
        run, ticket = await harness.supervisor.start(harness.make_spec())
        received: list[Change] = []
        async with attach(run, ticket, applies_backpressure=True) as reader:
            async for batch in reader:
                received += batch
                stored = await load_changes(store, "ann", "run-1", 0)
                assert stored[: len(received)] == tuple(received)
        assert await harness.logged() == received


async def test_a_strict_run_waits_for_the_store() -> None:
    store, agent = BlockableStore(), EventReplayAgent(SAID, holds=True)
    store.blocked["append"] = trio.Event()
    async with open_supervisor_harness(agent, store, is_strict=True) as harness:
        run, ticket = await harness.supervisor.start(harness.make_spec())
        async with attach(run, ticket) as reader:
            await agent.said_all.wait()
            await wait_all_tasks_blocked()
            with pytest.raises(trio.WouldBlock):
                reader.receive_nowait()
            store.blocked["append"].set()
            assert text_of(await reader.receive()) == "one two"
            agent.may_end.set()
            [ended] = await read_all(reader)
        assert isinstance(ended, Ended)
        assert ended.outcome.status is Status.COMPLETED


async def test_a_strict_run_whose_store_fails_tells_what_it_could_not_save() -> None:
    store, agent = BlockableStore(), EventReplayAgent(SAID)
    store.broken |= {"append", "end"}
    async with open_supervisor_harness(agent, store, is_strict=True) as harness:
        run, ticket = await harness.supervisor.start(harness.make_spec())
        async with attach(run, ticket) as reader:
            received = await read_all(reader)
        assert text_of(received) == "one two"
        assert isinstance(received[-1], Ended)
        assert received[-1].outcome.failure.kind == "store_error"


async def test_strict_logs_are_written_at_once(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    store = BlockableStore()
    flusher = LogFlusher(store, is_strict=True)
    kept = kept_log(flusher, "run-1")
    nursery.start_soon(flusher.run)
    kept.changes.append(words("a"))
    await wait_all_tasks_blocked()
    assert len(store.of("append")) == 1
    assert trio.current_time() == 0
