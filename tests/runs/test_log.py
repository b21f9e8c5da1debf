"""The live log: cursors, holding back, what stays in memory."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from hermes_trio.agent.event_queue import MAX_EVENTS
from hermes_trio.core.changes import (
    CallEnded,
    CallStarted,
    Change,
    ClientToolCalled,
    Ended,
    NumbersSkipped,
    ReasoningAdded,
    TextAdded,
    ToolOutputAdded,
)
from hermes_trio.core.outcome import Outcome, Reason
from hermes_trio.core.state import CallState
from hermes_trio.runs.log import (
    MAX_INLINE_CHARS,
    MAX_LAG,
    MAX_UNSAVED,
    MAX_UNSAVED_PUBLISHED,
    MEMORY_WINDOW,
    Changes,
    LogTruncated,
    RunLog,
    Subscriber,
    is_long,
)
from tests.runs.test_pipeline import AfterFirstStep


def texts(first: int, count: int) -> Changes:
    return tuple(TextAdded(0, str(n)) for n in range(first, first + count))


async def all_of(log: RunLog, first: int = 0) -> Changes:
    with log.subscribe(first) as reader:
        return tuple([change async for batch in reader for change in batch])


async def test_every_reader_gets_everything_from_its_place_on() -> None:
    log = RunLog(no_store)
    results: dict[int, Changes] = {}

    async def read(first: int) -> None:
        results[first] = await all_of(log, first)

    async with trio.open_nursery() as nursery:
        for first in (0, 1, 3):
            nursery.start_soon(read, first)
        await wait_all_tasks_blocked()
        log.append(texts(0, 2))
        await wait_all_tasks_blocked()
        log.append(texts(2, 3))
        log.close()
    assert results == {0: texts(0, 5), 1: texts(1, 4), 3: texts(3, 2)}


async def no_store(first: int) -> Changes:
    raise AssertionError(f"{first} should be in memory")


async def test_a_latecomer_reads_an_ended_log() -> None:
    log = RunLog(no_store)
    log.append(texts(0, 3))
    log.close()
    assert await all_of(log) == texts(0, 3)
    assert await all_of(log, 3) == ()


async def test_what_waits_is_taken_without_waiting() -> None:
    log = RunLog()
    with log.subscribe() as reader:
        with pytest.raises(trio.WouldBlock):
            reader.receive_nowait()
        log.append(texts(0, 2))
        assert reader.receive_nowait() == texts(0, 2)


async def test_a_reader_that_holds_back_is_waited_for() -> None:
    log = RunLog()
    with log.subscribe(applies_backpressure=True) as reader:
        log.append(texts(0, MAX_LAG))
        await log.wait_writable()
        log.append(texts(MAX_LAG, 1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.wait_writable)
            await wait_all_tasks_blocked()
            assert nursery.child_tasks
            await reader.receive()
    log.append(texts(0, 10 * MAX_LAG))
    await log.wait_writable()  # nobody is left to wait for


async def test_other_readers_are_not_waited_for() -> None:
    log = RunLog(no_store)
    with log.subscribe():
        log.append(texts(0, 10 * MAX_LAG))
        await log.wait_writable()


async def test_the_store_is_waited_for_when_it_is_far_behind() -> None:
    log = RunLog(no_store)
    log.append(texts(0, MAX_UNSAVED + 1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.wait_writable)
        await wait_all_tasks_blocked()
        assert nursery.child_tasks
        log.mark_saved(MAX_UNSAVED)


async def test_without_a_store_memory_holds_what_readers_still_need() -> None:
    log = RunLog()
    with log.subscribe() as slow, log.subscribe() as fast:
        log.append(texts(0, 3))
        await fast.receive()
        assert log.base == 0
        await slow.receive()
        assert (log.base, log.end) == (3, 3)


async def test_a_laggard_reads_from_the_store() -> None:
    everything = texts(0, 3 * MEMORY_WINDOW)
    asked: list[int] = []

    async def load(first: int) -> Changes:
        asked.append(first)
        return everything[first : first + 100]

    log = RunLog(load)
    with log.subscribe() as reader:
        for change in everything:
            log.append((change,))
        log.mark_saved(len(everything))
        assert log.base == 2 * MEMORY_WINDOW
        log.close()
        got = tuple([change async for batch in reader for change in batch])
    assert got == everything
    assert asked[0] == 1  # the first one waited in the channel


async def test_what_is_nowhere_is_lost() -> None:
    async def load(first: int) -> Changes:
        return ()

    log = RunLog(load)
    with log.subscribe() as reader:
        log.append(texts(0, 1))
        log.append(texts(1, 3 * MEMORY_WINDOW))
        log.mark_saved(3 * MEMORY_WINDOW)
        assert reader.receive_nowait() == texts(0, 1)
        with pytest.raises(trio.WouldBlock):
            reader.receive_nowait()
        with pytest.raises(LogTruncated):
            await reader.receive()


async def test_growth_is_told() -> None:
    told: list[int] = []
    log = RunLog(no_store)
    log.on_append(lambda: told.append(log.end))
    log.append(texts(0, 2))
    log.append(texts(2, 1))
    assert told == [2, 3]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=12))
def test_readers_that_come_and_go_miss_nothing(visits: list[tuple[int, int]]) -> None:
    async def main() -> None:
        log, got = RunLog(no_store), list[TextAdded]()
        for appended, taken in visits:
            log.append(texts(log.end, appended))
            with log.subscribe(len(got)) as reader:
                for _ in range(min(taken, 1) if log.end > len(got) else 0):
                    got.extend(
                        change for change in await reader.receive() if isinstance(change, TextAdded)
                    )
        log.close()
        got.extend(
            change for change in await all_of(log, len(got)) if isinstance(change, TextAdded)
        )
        assert tuple(got) == texts(0, log.end)

    trio.run(main)


def test_a_reader_that_nobody_waits_for_is_left_behind_when_there_is_no_store() -> None:
    """Memory is bounded by what the others need and a fixed amount, however slow that one is."""
    log = RunLog()
    with log.subscribe(applies_backpressure=True) as first, log.subscribe() as slow:
        for n in range(MEMORY_WINDOW + 10):
            log.append((TextAdded(0, str(n)),))
            first.receive_nowait()
        assert log.base == 10
        assert slow.receive_nowait() == texts(0, 1)  # which waited in the channel
        with pytest.raises(trio.WouldBlock):
            slow.receive_nowait()


def test_the_latest_changes() -> None:
    log = RunLog()
    assert log.recent() == ()
    with log.subscribe(applies_backpressure=True) as reader:
        changes = tuple(TextAdded(0, str(n)) for n in range(5))
        log.append(changes)
        assert (log.recent(), log.recent(2)) == (changes, changes[-2:])
        reader.receive_nowait()
        assert log.recent() == changes[-1:]


async def test_what_is_trimmed_while_a_subscriber_is_about_to_read_it_is_not_mixed_up() -> None:
    log = RunLog()
    with log.subscribe(applies_backpressure=True) as first, log.subscribe() as slow:
        log.append(texts(0, 1))
        log.append(texts(1, 1))
        assert first.receive_nowait() == texts(0, 1)
        assert first.receive_nowait() == texts(1, 1)
        assert slow.receive_nowait() == texts(0, 1)
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                with pytest.raises(LogTruncated):
                    await slow.receive()

            nursery.start_soon(read)
            trio.lowlevel.add_instrument(AfterFirstStep("read", partial(outrun, log, first)))


def outrun(log: RunLog, first: Subscriber) -> None:
    """Let another subscriber get so far ahead that memory is trimmed."""
    for number in range(2, MEMORY_WINDOW + 10):
        log.append(texts(number, 1))
        first.receive_nowait()


# How far subscribers may be ahead of the store.

ENDED = Ended(Outcome.from_cancellation(Reason.TIMEOUT))


def received(reader: Subscriber) -> int:
    """How many changes a subscriber gets now."""
    count = 0
    try:
        while True:
            count += len(reader.receive_nowait())
    except trio.WouldBlock:
        return count


async def test_subscribers_are_never_further_ahead_of_the_store_than_recovery_skips() -> None:
    log = RunLog(no_store)
    with log.subscribe() as reader:
        log.append(texts(0, MAX_UNSAVED_PUBLISHED - 1))
        log.append(texts(MAX_UNSAVED_PUBLISHED - 1, 10))
        assert received(reader) == MAX_UNSAVED_PUBLISHED
        assert len(log.read(0)) == MAX_UNSAVED_PUBLISHED
        assert len(log.read_unsaved(0)) == MAX_UNSAVED_PUBLISHED + 9
        log.mark_saved(4)
        assert received(reader) == 4
        log.append((ENDED,))  # which could not be saved: the store is too far behind to tell it
        log.close()
        assert received(reader) == 0
        with pytest.raises(trio.EndOfChannel):
            await reader.receive()


def test_the_agent_waits_for_the_store_long_before_subscribers_have_to() -> None:
    assert MAX_UNSAVED + MAX_EVENTS < MAX_UNSAVED_PUBLISHED


def test_a_strict_log_publishes_what_the_store_has() -> None:
    log = RunLog(no_store, publishes_unsaved=False)
    with log.subscribe(applies_backpressure=True) as reader, log.subscribe(3) as other:
        log.append(texts(0, 3))
        log.append(texts(3, 2))
        assert (received(reader), log.read(0)) == (0, ())
        assert log.has_room  # its subscriber is not behind
        log.mark_saved(4)
        assert (received(reader), received(other)) == (4, 1)
        log.append(texts(5, 1))
        assert received(reader) == 0
        log.mark_saved(7)  # with the end, which follows
        assert received(reader) == 2
        log.append((ENDED,))
        assert received(reader) == 1


def test_a_strict_log_tells_an_end_that_could_not_be_saved() -> None:
    log = RunLog(no_store, publishes_unsaved=False)
    with log.subscribe() as reader:
        log.append(texts(0, 3))
        log.append((ENDED,))
        assert received(reader) == 4


def test_a_strict_log_without_a_store_publishes_at_once() -> None:
    log = RunLog(publishes_unsaved=False)
    with log.subscribe() as reader:
        log.append(texts(0, 3))
        assert received(reader) == 3


async def test_a_strict_subscriber_that_reads_ahead_in_the_store_gets_nothing_twice() -> None:
    """The store has committed a batch, but the log does not know that yet."""
    everything = texts(0, 3 * MEMORY_WINDOW)

    async def load(first: int) -> Changes:
        return everything[first:]

    log = RunLog(load, publishes_unsaved=False)
    log.append(everything)
    log.mark_saved(2 * MEMORY_WINDOW)
    with log.subscribe() as reader:
        assert await reader.receive() == everything
        log.mark_saved(len(everything))
        assert received(reader) == 0
        log.append(texts(len(everything), 2))
        log.mark_saved(log.end)
        assert received(reader) == 2


class PartialWriter:
    """A write-through that never gets everything out."""

    def __init__(self) -> None:
        self.taken: list[Changes] = []

    def take(self, changes: Changes) -> bool:
        self.taken.append(changes)
        return False


async def test_nothing_is_written_through_behind_a_part_that_is_not_out() -> None:
    """Nor while the channel is full: a wake-up from before is still in it."""
    log, writer = RunLog(no_store), PartialWriter()
    with log.subscribe() as subscriber:
        subscriber.set_write_through(writer)

        async def receive_cancelled() -> None:
            with trio.CancelScope() as scope:
                scope.cancel()
                await subscriber.receive()

        def append(first: int, count: int) -> None:
            for number in range(first, first + count):
                log.append(texts(number, 1))

        for first, count in ((0, 1), (1, 3)):
            during = AfterFirstStep("receive_cancelled", partial(append, first, count))
            trio.lowlevel.add_instrument(during)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive_cancelled)
        assert writer.taken == [texts(0, 1), texts(1, 1)]
        assert await subscriber.receive() == texts(2, 2)


LONG = "a" * MAX_INLINE_CHARS


@pytest.mark.parametrize(
    "change",
    [
        TextAdded(0, LONG),
        ReasoningAdded(0, LONG),
        ToolOutputAdded(0, "call", LONG),
        CallStarted(0, "call", "tool", {"text": LONG, "number": 1}, 0.0),
        CallEnded(0, "call", "tool", CallState.COMPLETED, LONG, False, 0.0),
        ClientToolCalled(0, "call", "tool", LONG),
    ],
)
def test_long_changes(change: Change) -> None:
    assert not is_long((change, NumbersSkipped(1)))
    assert is_long((TextAdded(0, "b"), change))
