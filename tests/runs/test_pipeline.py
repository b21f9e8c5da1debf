"""Agent, tracker and subscriber, linked by memory channels.

Order, back-pressure, write-through, failures.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.agent.event_queue import EventQueue
from hermes_trio.core.changes import Change, Ended, TextAdded
from hermes_trio.core.events import Event, Finished, Text, ToolStarted
from hermes_trio.core.outcome import Reason
from hermes_trio.core.turn import Turn
from hermes_trio.runs.log import MAX_UNSAVED, ChangeReader, Changes, RunLog
from hermes_trio.runs.tracker import DEFAULT_LIMITS, RunCallbacks, Tracker


class Pipeline:
    """A tracker with its queue and its log, without a store."""

    def __init__(self, scope: trio.CancelScope, load: Any) -> None:
        self._scope = scope
        self.stopped: list[Reason] = []
        self.saved: list[Ended] = []
        self.queue, self.log = EventQueue(), RunLog(load)
        callbacks = RunCallbacks(
            save=self.save,
            save_later=lambda *_: True,
            stop=self.stop,
            cancel_reason=lambda: self.stopped[0],
            now=lambda: 0.0,
            request_approval=lambda _: None,
        )
        self.tracker = Tracker(self.queue, self.log, callbacks, DEFAULT_LIMITS)

    def emit(self, *events: Event) -> None:
        """Emit as an agent that is a task does."""
        for event in events:
            assert self.queue.put_nowait(event)

    def finish(self) -> None:
        self.queue.put_final(Finished())
        self.queue.close_send()

    async def save(self, _turn: Turn, ended: Ended) -> bool:
        self.saved.append(ended)
        return True

    def stop(self, reason: Reason) -> None:
        self.stopped.append(reason)
        self._scope.cancel()


@asynccontextmanager
async def open_pipeline(load: Any = None) -> AsyncIterator[Pipeline]:
    async with trio.open_nursery() as nursery:
        pipeline = Pipeline(nursery.cancel_scope, load)
        pipeline.tracker.begin()
        nursery.start_soon(pipeline.tracker.run)
        await wait_all_tasks_blocked()
        yield pipeline
        if not pipeline.stopped:
            pipeline.finish()


async def collect(reader: ChangeReader, into: list[Change]) -> None:
    async for batch in reader:
        into += batch


def texts(changes: list[Change]) -> str:
    return "".join(change.text for change in changes if isinstance(change, TextAdded))


async def nothing_stored(first: int) -> Changes:
    raise AssertionError(first)


async def test_events_reach_a_subscriber_in_order_and_the_channel_ends() -> None:
    read: list[Change] = []
    async with open_pipeline() as pipeline, trio.open_nursery() as nursery:
        with pipeline.log.subscribe(applies_backpressure=True) as reader:
            nursery.start_soon(collect, reader, read)
            pipeline.emit(Text("a"), ToolStarted("c", "tool", {}), Text("b"), Text("c"))
            await wait_all_tasks_blocked()
            pipeline.finish()
            await wait_all_tasks_blocked()
    assert texts(read) == "abc"
    assert len(read) == 5  # the last two pieces of text became one; the call ends with the turn
    assert isinstance(read[-1], Ended)
    assert pipeline.saved == [read[-1]]


async def test_what_is_emitted_while_the_reader_is_busy_becomes_one_change() -> None:
    async with open_pipeline() as pipeline:
        with pipeline.log.subscribe(applies_backpressure=True) as reader:
            for word in "abcdef":
                pipeline.emit(Text(word))
                await wait_all_tasks_blocked()
            assert texts(list(await reader.receive())) == "a"
            assert texts(list(await reader.receive())) == "b"  # the log may be one change ahead
            await wait_all_tasks_blocked()
            assert [texts([change]) for change in await reader.receive()] == ["cdef"]


async def test_a_slow_reader_blocks_the_agent_and_nothing_is_lost() -> None:
    async with open_pipeline() as pipeline:
        with pipeline.log.subscribe(applies_backpressure=True) as reader:
            count = 0
            while pipeline.queue.put_nowait(str(count % 10)):
                count += 1
                await wait_all_tasks_blocked()
            read: list[Change] = []
            while len(texts(read)) < count:
                read += await reader.receive()
    assert texts(read) == "".join(str(number % 10) for number in range(count))


async def test_a_subscriber_without_back_pressure_catches_up_from_the_log() -> None:
    async with open_pipeline(nothing_stored) as pipeline:
        with pipeline.log.subscribe() as reader:
            for number in range(10):
                pipeline.emit(Text(str(number)))
                await wait_all_tasks_blocked()
            first = await reader.receive()
            assert texts([*first, *reader.receive_nowait()]) == "0123456789"
            pipeline.emit(Text("!"))
            assert texts(list(await reader.receive())) == "!"


async def test_a_store_that_is_behind_is_waited_for() -> None:
    read: list[Change] = []
    async with open_pipeline(nothing_stored) as pipeline, trio.open_nursery() as nursery:
        with pipeline.log.subscribe(applies_backpressure=True) as reader:
            nursery.start_soon(collect, reader, read)
            pipeline.log.append(tuple(TextAdded(0, "x") for _ in range(MAX_UNSAVED + 1)))
            for _ in range(3):  # the first still reaches the tracker, which then waits
                pipeline.emit(Text("y"))
                await wait_all_tasks_blocked()
            assert texts(read).count("y") == 1
            pipeline.log.mark_saved(pipeline.log.end)
            await wait_all_tasks_blocked()
            assert texts(read).count("y") == 3
            pipeline.finish()
            await wait_all_tasks_blocked()


async def test_a_bug_in_the_turn_ends_the_run_as_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("ours")

    async with open_pipeline() as pipeline:
        with monkeypatch.context() as patch:
            patch.setattr(Turn, "take", fail)
            pipeline.emit(Text("a"))
            await wait_all_tasks_blocked()
    assert pipeline.stopped == [Reason.SERVER_ERROR]
    assert len(pipeline.saved) == 1


class Recorder:
    """A write-through that takes changes until it is full, and then asks for its reader."""

    def __init__(self, room: int = 1_000) -> None:
        self._room = room
        self.taken: list[Change] = []

    def take(self, changes: Changes) -> bool:
        self.taken += changes
        return len(self.taken) <= self._room


async def test_write_through_takes_what_is_appended_while_the_reader_waits() -> None:
    recorder, batches = Recorder(), list[Changes]()
    async with open_pipeline() as pipeline, trio.open_nursery() as nursery:
        with pipeline.log.subscribe(applies_backpressure=True) as reader:
            reader.set_write_through(recorder)

            async def receive() -> None:
                batches.append(await reader.receive())

            pipeline.emit(Text("a"))
            await wait_all_tasks_blocked()
            await receive()  # it did not wait yet
            nursery.start_soon(receive)
            await wait_all_tasks_blocked()
            await trio.to_thread.run_sync(pipeline.queue.put, "b")
            await wait_all_tasks_blocked()
            pipeline.emit(Text("c"))
            await wait_all_tasks_blocked()
            assert texts(recorder.taken) == "bc"
            assert [texts(list(batch)) for batch in batches] == ["a"]
            nursery.cancel_scope.cancel()


async def test_a_woken_reader_comes_before_what_is_appended_next() -> None:
    recorder, batches = Recorder(room=1), list[Changes]()
    async with open_pipeline() as pipeline, trio.open_nursery() as nursery:
        with pipeline.log.subscribe(applies_backpressure=True) as reader:
            reader.set_write_through(recorder)

            async def receive_three() -> None:
                for _ in range(3):
                    batches.append(await reader.receive())

            nursery.start_soon(receive_three)
            await wait_all_tasks_blocked()
            for word in "abc":
                pipeline.log.append(
                    (TextAdded(0, word),)
                )  # in one step: the reader does not run in between
            await wait_all_tasks_blocked()
            assert texts(recorder.taken) == "ab"
            assert [texts(list(batch)) for batch in batches] == ["", "c"]
            pipeline.log.append((TextAdded(0, "d"),))
            await wait_all_tasks_blocked()
            assert texts(recorder.taken) == "abd"
            assert batches[-1] == ()
            assert reader.position == 4


class AfterFirstStep(trio.abc.Instrument):
    """Calls a function after the first step of one kind of task."""

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self._name, self._callback = name, callback

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name.endswith(self._name):
            trio.lowlevel.remove_instrument(self)
            self._callback()


async def test_write_through_never_overtakes_what_the_reader_is_taking() -> None:
    """The reader takes the first batch out of its channel and yields.

    The next one is appended in that moment.
    """
    recorder, batches = Recorder(), list[Changes]()
    async with open_pipeline() as pipeline, trio.open_nursery() as nursery:
        with pipeline.log.subscribe() as reader:
            reader.set_write_through(recorder)

            async def take_one() -> None:
                batches.append(await reader.receive())

            pipeline.log.append((TextAdded(0, "a"),))
            append = partial(pipeline.log.append, (TextAdded(0, "b"),))
            trio.lowlevel.add_instrument(AfterFirstStep("take_one", append))
            nursery.start_soon(take_one)
            await wait_all_tasks_blocked()
            assert [texts(list(batch)) for batch in batches] == ["a"]
            assert recorder.taken == []
            assert texts(list(await reader.receive())) == "b"
