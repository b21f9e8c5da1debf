"""The queue between an agent and its tracker."""

from __future__ import annotations

import threading

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.agent.event_queue import EventQueue, RunEnded
from hermes_trio.core.events import Event, Finished, Reasoning, Text, ToolStarted


async def in_thread(queue: EventQueue, *events: Event) -> None:
    def put_all() -> None:
        for event in events:
            queue.put(event)

    await trio.to_thread.run_sync(put_all, abandon_on_cancel=True)


async def received(queue: EventQueue) -> list[Event]:
    """Everything until the end."""
    events: list[Event] = []
    while True:
        try:
            events += await queue.receive()
        except trio.EndOfChannel:
            return events


async def test_pending_events_arrive_in_one_batch_and_in_order() -> None:
    queue = EventQueue()
    await in_thread(queue, Text("a"), ToolStarted("x", "t"), Text("b"))
    assert await queue.receive() == [Text("a"), ToolStarted("x", "t"), Text("b")]


async def test_a_sleeping_receiver_is_woken() -> None:
    queue = EventQueue()
    batches: list[list[Event]] = []

    async def receive() -> None:
        batches.append(await queue.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        await in_thread(queue, Text("a"))
    assert batches == [[Text("a")]]


async def test_the_end_is_the_closed_channel() -> None:
    queue = EventQueue()
    await in_thread(queue, Text("a"))
    queue.put_final(Text("last"))
    queue.close_send()
    assert await received(queue) == [Text("alast")]


@pytest.mark.parametrize(("max_events", "max_chars"), [(3, 1000), (1000, 3)])
async def test_a_full_queue_blocks_the_producer(max_events: int, max_chars: int) -> None:
    queue = EventQueue(max_events, max_chars)
    put = threading.Semaphore(0)

    def speak() -> None:
        for n in range(10):
            queue.put(Reasoning(str(n)) if n % 2 else Text(str(n)))
            put.release()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, speak)
        for _ in range(3):
            await trio.to_thread.run_sync(put.acquire)
        assert not put.acquire(timeout=0.02)  # the fourth waits
        events: list[Event] = []
        while len(events) < 10:
            events += await queue.receive()
    assert events == [Reasoning(str(n)) if n % 2 else Text(str(n)) for n in range(10)]


async def test_closing_wakes_a_blocked_producer() -> None:
    queue = EventQueue(max_events=1)
    queue.put_final(Text("full"))
    ended = threading.Event()

    def speak() -> None:
        try:
            queue.put(Text("never"))
        except RunEnded:
            ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, speak)
        await wait_all_tasks_blocked()
        queue.close()
    assert ended.is_set()


async def test_drain_takes_all_that_was_put_and_nothing_later() -> None:
    queue = EventQueue()
    await in_thread(queue, Text("a"))
    queue.put_final(Text("b"))
    assert queue.drain() == [Text("ab")]
    with pytest.raises(RunEnded):
        queue.try_put(Text("c"))
    queue.put_final(Text("d"))
    assert queue.drain() == []


async def test_drain_after_finish_takes_the_rest() -> None:
    queue = EventQueue()
    queue.put_final(Text("a"))
    queue.close_send()
    assert queue.drain() == [Text("a")]


async def test_a_task_waits_for_space_without_blocking_the_loop() -> None:
    queue = EventQueue(max_events=1)
    assert queue.try_put(Text("a"))
    assert not queue.try_put(Text("b"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.wait_space)
        await wait_all_tasks_blocked()
        assert await queue.receive() == [Text("a")]
    assert queue.try_put(Text("b"))


def test_emitting_after_trio_has_ended_raises_run_ended() -> None:
    async def make() -> EventQueue:
        return EventQueue()

    queue = trio.run(make)
    queue.put_final(Text("nobody hears"))
    queue.put(Text("nor this, but who says it finds out"))
    with pytest.raises(RunEnded):
        queue.put(Text("a"))


@pytest.mark.parametrize("threads", [8])
async def test_many_threads_lose_nothing(threads: int) -> None:
    queue = EventQueue(max_events=16)
    each = 200

    def speak(name: int) -> None:
        for n in range(each):
            queue.put(ToolStarted(f"{name}:{n}", "t"))

    ids: list[str] = []
    async with trio.open_nursery() as nursery:
        for name in range(threads):
            nursery.start_soon(trio.to_thread.run_sync, speak, name)
        while len(ids) < threads * each:
            ids += [
                event.call_id for event in await queue.receive() if isinstance(event, ToolStarted)
            ]
    for name in range(threads):
        assert [call for call in ids if call.startswith(f"{name}:")] == [
            f"{name}:{n}" for n in range(each)
        ]


async def test_a_nonblocking_producer_is_notified_once_when_there_is_space() -> None:
    queue = EventQueue(max_events=1)
    told: list[str] = []
    queue.when_space(lambda: told.append("at once"))
    queue.put(Text("a"))
    queue.when_space(lambda: told.append("later"))
    assert told == ["at once"]
    await queue.receive()
    queue.put(Text("b"))
    await queue.receive()
    assert told == ["at once", "later"]


async def test_a_nonblocking_producer_is_notified_of_the_end() -> None:
    queue = EventQueue(max_events=1)
    told: list[str] = []
    queue.put(Text("a"))
    queue.when_space(lambda: told.append("closed"))
    queue.close()
    queue.when_space(lambda: told.append("and after"))
    assert told == ["closed", "and after"]


async def test_the_final_event_reaches_a_waiting_consumer() -> None:
    queue = EventQueue()
    heard: list[Event] = []

    async def listen() -> None:
        heard.extend(await queue.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await wait_all_tasks_blocked()
        queue.put_final(Text("bye"))
        queue.close_send()  # before Trio came to tell
    assert heard == [Text("bye")]
    with pytest.raises(trio.EndOfChannel):
        await queue.receive()


async def test_put_nowait_reports_a_full_queue_and_the_end() -> None:
    queue = EventQueue(max_events=2)
    assert queue.put_nowait(Text("a"))
    assert queue.put_nowait(Text("b"))
    assert not queue.put_nowait(Text("c"))
    assert await queue.receive() == [Text("ab")]
    queue.close()
    with pytest.raises(RunEnded):
        queue.put_nowait(Text("d"))


async def test_pending_events_never_overtake_the_channel() -> None:
    """The consumer takes the first batch and yields.

    The next one is in the channel, and the last one is pending.
    """
    queue, events = EventQueue(), list[Event]()

    async def receive() -> None:
        events.extend(await queue.receive())

    assert queue.put_nowait("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await trio.lowlevel.checkpoint()
        assert queue.put_nowait("b")
        queue.put_final(Finished())
        queue.close_send()
    assert events == [Text("ab"), Finished()]


async def test_adjacent_text_is_merged_when_it_is_received() -> None:
    queue = EventQueue()
    for word in ("a", "b", "c"):
        queue.put(word)
    assert await queue.receive() == [Text("abc")]
    for said in ("a", "b", ToolStarted("x", "t"), "c"):
        queue.put(said)
    assert await queue.receive() == [Text("ab"), ToolStarted("x", "t"), Text("c")]


@pytest.mark.parametrize(("max_events", "max_chars"), [(3, 1000), (1000, 3)])
async def test_every_text_event_counts_towards_the_limit(max_events: int, max_chars: int) -> None:
    queue = EventQueue(max_events, max_chars)
    assert [queue.try_put(word) for word in "abcd"] == [True, True, True, False]
    assert queue.drain() == [Text("abc")]
    assert queue.drain() == []


async def test_a_final_event_needs_no_wake_up() -> None:
    queue = EventQueue()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(received, queue)
        await wait_all_tasks_blocked()
        queue.put_final(Text("bye"))
        assert trio.lowlevel.current_statistics().run_sync_soon_queue_size == 0
        queue.close_send()
    queue.put_final(Text("too late"))
    assert queue.drain() == []
