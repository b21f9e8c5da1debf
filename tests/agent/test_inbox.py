"""The way from an agent's threads to the tracker."""

from __future__ import annotations

import threading

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.agent.inbox import Inbox, RunEnded
from hermes_trio.core.events import Event, Text, ToolStarted


async def in_thread(inbox: Inbox, *events: Event) -> None:
    def put_all() -> None:
        for event in events:
            inbox.put(event)

    await trio.to_thread.run_sync(put_all, abandon_on_cancel=True)


async def received(inbox: Inbox) -> list[Event]:
    """Everything until the end."""
    events: list[Event] = []
    while True:
        try:
            events += await inbox.receive()
        except trio.EndOfChannel:
            return events


async def test_what_waits_arrives_in_one_batch_and_in_order() -> None:
    inbox = Inbox()
    await in_thread(inbox, Text("a"), ToolStarted("x", "t"), Text("b"))
    assert await inbox.receive() == [Text("a"), ToolStarted("x", "t"), Text("b")]


async def test_a_sleeping_receiver_is_woken() -> None:
    inbox = Inbox()
    batches: list[list[Event]] = []

    async def receive() -> None:
        batches.append(await inbox.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        await in_thread(inbox, Text("a"))
    assert batches == [[Text("a")]]


async def test_the_end_is_the_closed_channel() -> None:
    inbox = Inbox()
    await in_thread(inbox, Text("a"))
    inbox.post(Text("last"))
    inbox.finish()
    assert await received(inbox) == [Text("a"), Text("last")]


@pytest.mark.parametrize(("places", "characters"), [(3, 1000), (1000, 3)])
async def test_a_full_inbox_makes_the_speaker_wait(places: int, characters: int) -> None:
    inbox = Inbox(places, characters)
    put = threading.Semaphore(0)

    def speak() -> None:
        for n in range(10):
            inbox.put(Text(str(n)))
            put.release()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, speak)
        for _ in range(3):
            await trio.to_thread.run_sync(put.acquire)
        assert not put.acquire(timeout=0.02)  # the fourth waits
        events: list[Event] = []
        while len(events) < 10:
            events += await inbox.receive()
    assert events == [Text(str(n)) for n in range(10)]


async def test_closing_wakes_a_waiting_speaker() -> None:
    inbox = Inbox(places=1)
    inbox.post(Text("full"))
    ended = threading.Event()

    def speak() -> None:
        try:
            inbox.put(Text("never"))
        except RunEnded:
            ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, speak)
        await wait_all_tasks_blocked()
        inbox.close()
    assert ended.is_set()


async def test_drain_takes_all_that_was_put_and_nothing_later() -> None:
    inbox = Inbox()
    await in_thread(inbox, Text("a"))
    inbox.post(Text("b"))
    assert inbox.drain() == [Text("a"), Text("b")]
    with pytest.raises(RunEnded):
        inbox.try_put(Text("c"))
    inbox.post(Text("d"))
    assert inbox.drain() == []


async def test_drain_after_finish_takes_the_rest() -> None:
    inbox = Inbox()
    inbox.post(Text("a"))
    inbox.finish()
    assert inbox.drain() == [Text("a")]


async def test_a_task_waits_for_space_without_blocking_the_loop() -> None:
    inbox = Inbox(places=1)
    assert inbox.try_put(Text("a"))
    assert not inbox.try_put(Text("b"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(inbox.wait_space)
        await wait_all_tasks_blocked()
        assert await inbox.receive() == [Text("a")]
    assert inbox.try_put(Text("b"))


def test_speaking_after_the_server_is_gone_says_that_the_run_ended() -> None:
    async def make() -> Inbox:
        return Inbox()

    inbox = trio.run(make)
    inbox.post(Text("nobody hears"))
    inbox.put(Text("nor this, but who says it finds out"))
    with pytest.raises(RunEnded):
        inbox.put(Text("a"))


@pytest.mark.parametrize("threads", [8])
async def test_many_threads_lose_nothing(threads: int) -> None:
    inbox = Inbox(places=16)
    each = 200

    def speak(name: int) -> None:
        for n in range(each):
            inbox.put(Text(f"{name}:{n} "))

    events: list[Event] = []
    async with trio.open_nursery() as nursery:
        for name in range(threads):
            nursery.start_soon(trio.to_thread.run_sync, speak, name)
        while len(events) < threads * each:
            events += await inbox.receive()
    for name in range(threads):
        mine = [event for event in events if isinstance(event, Text) and event.text.startswith(f"{name}:")]
        assert mine == [Text(f"{name}:{n} ") for n in range(each)]


async def test_a_speaker_that_may_not_wait_is_told_once_when_there_is_space() -> None:
    inbox = Inbox(places=1)
    told: list[str] = []
    inbox.when_space(lambda: told.append("at once"))
    inbox.put(Text("a"))
    inbox.when_space(lambda: told.append("later"))
    assert told == ["at once"]
    await inbox.receive()
    inbox.put(Text("b"))
    await inbox.receive()
    assert told == ["at once", "later"]


async def test_a_speaker_that_may_not_wait_is_told_of_the_end() -> None:
    inbox = Inbox(places=1)
    told: list[str] = []
    inbox.put(Text("a"))
    inbox.when_space(lambda: told.append("closed"))
    inbox.close()
    inbox.when_space(lambda: told.append("and after"))
    assert told == ["closed", "and after"]


async def test_the_last_word_is_heard_by_one_who_waits_already() -> None:
    inbox = Inbox()
    heard: list[Event] = []

    async def listen() -> None:
        heard.extend(await inbox.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await wait_all_tasks_blocked()
        inbox.post(Text("bye"))
        inbox.finish()  # before Trio came to tell
    assert heard == [Text("bye")]
    with pytest.raises(trio.EndOfChannel):
        await inbox.receive()


async def test_a_task_tells_without_leaving_trio() -> None:
    inbox = Inbox(places=2)
    assert inbox.try_put_here(Text("a"))
    assert inbox.try_put_here(Text("b"))
    assert not inbox.try_put_here(Text("c"))
    assert await inbox.receive() == [Text("a"), Text("b")]
    inbox.close()
    with pytest.raises(RunEnded):
        inbox.try_put_here(Text("d"))


async def test_words_are_one_event_when_they_are_taken() -> None:
    inbox = Inbox()
    for word in ("a", "b", "c"):
        inbox.put(word)
    assert await inbox.receive() == [Text("abc")]
    for said in ("a", "b", ToolStarted("x", "t"), "c"):
        inbox.put(said)
    assert await inbox.receive() == [Text("ab"), ToolStarted("x", "t"), Text("c")]


@pytest.mark.parametrize(("places", "characters"), [(3, 1000), (1000, 3)])
async def test_every_word_takes_its_place(places: int, characters: int) -> None:
    inbox = Inbox(places, characters)
    assert [inbox.try_put(word) for word in "abcd"] == [True, True, True, False]
    assert inbox.drain() == [Text("abc")]
    assert inbox.drain() == []


async def test_a_last_word_needs_no_bell() -> None:
    inbox = Inbox()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(received, inbox)
        await wait_all_tasks_blocked()
        inbox.post(Text("bye"))
        assert trio.lowlevel.current_statistics().run_sync_soon_queue_size == 0
        inbox.finish()
    inbox.post(Text("too late"))
    assert inbox.drain() == []
