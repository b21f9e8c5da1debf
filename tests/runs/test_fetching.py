"""What an agent says goes to a reader that waits in one step: the reader fetches it in place of the tracker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.agent.inbox import Inbox
from hermes_trio.core.changes import Change, Ended, TextAdded
from hermes_trio.core.events import Event, Finished, Text, ToolStarted
from hermes_trio.core.outcome import Reason
from hermes_trio.core.turn import Turn
from hermes_trio.runs.log import BREATH, UNSAFE, Changes, Reader, RunLog
from hermes_trio.runs.tracker import DEFAULT_LIMITS, Hooks, Tracker


class Scene:
    """A tracker at work."""

    def __init__(self, scope: trio.CancelScope, load: Any) -> None:
        self._scope = scope
        self.time = 0.0
        self.stopped: list[Reason] = []
        self.saved: list[Ended] = []
        self.inbox, self.log = Inbox(), RunLog(load, lambda: self.time)
        hooks = Hooks(self.save, lambda *_: None, self.stop, self.why, lambda: 0.0, lambda _: None)
        self.tracker = Tracker(self.inbox, self.log, hooks, DEFAULT_LIMITS)

    def say(self, *events: Event) -> None:
        """As an agent that is a task does."""
        for event in events:
            assert self.inbox.try_put_here(event)

    def step(self, *events: Event) -> None:
        """The same, in a turn of its own."""
        self.inbox.begin_step()
        self.say(*events)
        self.inbox.end_step()

    def end(self) -> None:
        """The agent has finished."""
        self.inbox.post(Finished())
        self.inbox.finish()

    async def save(self, _turn: Turn, ended: Ended) -> None:
        self.saved.append(ended)

    def stop(self, reason: Reason) -> None:
        self.stopped.append(reason)
        self._scope.cancel()

    def why(self) -> Reason:
        return self.stopped[0]


class Steps(trio.abc.Instrument):
    """Counts the steps of one kind of task."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task has its turn."""
        self.count += task.name.endswith("Tracker.run")


async def nothing_stored(first: int) -> Changes:
    raise AssertionError(first)


@asynccontextmanager
async def at_work(load: Any = None) -> AsyncIterator[Scene]:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery.cancel_scope, load)
        scene.tracker.begin()
        nursery.start_soon(scene.tracker.run)
        await wait_all_tasks_blocked()
        yield scene
        if not scene.stopped:
            scene.end()


async def collect(reader: Reader, into: list[Change]) -> None:
    async for batch in reader:
        into += batch


def texts(changes: list[Change]) -> str:
    return "".join(change.text for change in changes if isinstance(change, TextAdded))


async def steps_for(holds_back: bool, *events: Event) -> tuple[int, list[Change]]:
    """How many steps the tracker itself takes for some events, and what a reader that waits gets."""
    read: list[Change] = []
    async with at_work() as scene, trio.open_nursery() as nursery:
        with scene.log.subscribe(holds_back=holds_back) as reader:
            nursery.start_soon(collect, reader, read)
            await wait_all_tasks_blocked()
            steps = Steps()
            trio.lowlevel.add_instrument(steps)
            scene.say(*events)
            await wait_all_tasks_blocked()
            trio.lowlevel.remove_instrument(steps)
            scene.end()
            await wait_all_tasks_blocked()
    return steps.count, read


async def test_a_reader_that_waits_fetches_it_and_the_tracker_rests() -> None:
    steps, read = await steps_for(True, Text("a"), ToolStarted("c", "tool", {}), Text("b"), Text("c"))
    assert steps == 0
    assert texts(read) == "abc"
    assert len(read) == 5  # the last two pieces of text became one; the call ends with the turn
    assert isinstance(read[-1], Ended)


async def test_others_are_served_by_the_tracker() -> None:
    steps, read = await steps_for(False, Text("a"), Text("b"))
    assert steps == 1
    assert texts(read) == "ab"


async def test_the_end_is_the_trackers() -> None:
    steps, read = await steps_for(True, Text("a"), Finished())
    assert steps > 0
    assert texts(read) == "a"
    assert isinstance(read[-1], Ended)


async def test_what_a_reader_cannot_fetch_any_more_is_left_to_the_tracker() -> None:
    """It is cancelled in the very moment in which it would be woken."""
    async with at_work() as scene:
        with scene.log.subscribe(holds_back=True) as reader, trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(collect, reader, [])
                await wait_all_tasks_blocked()
                scope.cancel()
                scene.say(Text("a"))
        await wait_all_tasks_blocked()
        assert texts(list(scene.log.recent())) == "a"


async def test_a_store_that_is_behind_is_waited_for() -> None:
    async with at_work(nothing_stored) as scene, trio.open_nursery() as nursery:
        with scene.log.subscribe(holds_back=True) as reader:
            nursery.start_soon(collect, reader, read := list[Change]())
            await wait_all_tasks_blocked()
            scene.log.append(tuple(TextAdded(0, "x") for _ in range(UNSAFE + 1)))
            await wait_all_tasks_blocked()
            for _ in range(3):  # the first still goes to the tracker, which then waits
                scene.say(Text("y"))
                await wait_all_tasks_blocked()
            assert texts(read).count("y") == 1
            scene.log.saved(scene.log.end)
            await wait_all_tasks_blocked()
            assert texts(read).count("y") == 3
            scene.end()
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()


async def test_a_mistake_while_fetching_ends_the_run_as_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("ours")

    read: list[Change] = []
    async with at_work() as scene, trio.open_nursery() as nursery:
        with scene.log.subscribe(holds_back=True) as reader:
            nursery.start_soon(collect, reader, read)
            await wait_all_tasks_blocked()
            with monkeypatch.context() as patch:
                patch.setattr(Turn, "take", fail)
                scene.say(Text("a"))
                await wait_all_tasks_blocked()
    assert scene.stopped[0] is Reason.SERVER_ERROR
    assert len(scene.saved) == 1


class Page:
    """What a pen writes, as far as the paper goes."""

    def __init__(self, room: int = 1_000) -> None:
        self._room = room
        self.written: list[Change] = []

    def of(self, reader: Reader) -> Reader:
        """The reader, with a pen."""
        reader.write_with(lambda: self._write(reader))
        return reader

    def _write(self, reader: Reader) -> bool:
        if len(self.written) >= self._room:
            return False
        self.written += reader.receive_nowait()
        return True


async def test_a_pen_writes_when_the_step_of_the_agent_is_over_and_nobody_is_woken() -> None:
    page, read = Page(), list[Change]()
    async with at_work() as scene, trio.open_nursery() as nursery:
        with page.of(scene.log.subscribe(holds_back=True)) as reader:
            nursery.start_soon(collect, reader, read)
            await wait_all_tasks_blocked()
            scene.inbox.begin_step()
            scene.say(Text("a"), Text("b"))
            assert not page.written
            scene.inbox.end_step()
            assert texts(page.written) == "ab"
            assert len(page.written) == 1
            scene.step()  # nothing was said
            assert len(page.written) == 1
            await wait_all_tasks_blocked()
            assert not read
            scene.say(Text("c"))  # outside of a step: a task of the agent's, which may go on for long
            assert texts(page.written) == "ab"
            await wait_all_tasks_blocked()
            scene.end()
            await wait_all_tasks_blocked()
    assert texts(page.written + read) == "abc"


async def test_a_burst_is_left_to_the_reader_who_takes_it_in_one_piece() -> None:
    page, read = Page(), list[Change]()
    async with at_work() as scene, trio.open_nursery() as nursery:
        with page.of(scene.log.subscribe(holds_back=True)) as reader:
            nursery.start_soon(collect, reader, read)
            await wait_all_tasks_blocked()
            for word in "abc":
                scene.step(Text(word))
            await wait_all_tasks_blocked()
            assert (texts(page.written), texts(read)) == ("a", "bc")
            assert len(read) == 1
            scene.time += BREATH
            scene.step(Text("d"))
            assert texts(page.written) == "ad"
            scene.end()
            await wait_all_tasks_blocked()


async def test_a_pen_writes_what_a_thread_says_when_trio_hears_the_bell() -> None:
    page = Page()
    async with at_work() as scene, trio.open_nursery() as nursery:
        with page.of(scene.log.subscribe(holds_back=True)) as reader:
            nursery.start_soon(collect, reader, read := list[Change]())
            await wait_all_tasks_blocked()
            await trio.to_thread.run_sync(scene.inbox.put, "a")
            await wait_all_tasks_blocked()
            assert texts(page.written) == "a"
            assert not read
            scene.end()
            await wait_all_tasks_blocked()


async def test_what_does_not_fit_on_the_page_is_for_the_reader() -> None:
    page, read = Page(room=1), list[Change]()
    async with at_work() as scene, trio.open_nursery() as nursery:
        with page.of(scene.log.subscribe(holds_back=True)) as reader:
            nursery.start_soon(collect, reader, read)
            await wait_all_tasks_blocked()
            for word in "abc":
                scene.time += BREATH
                scene.step(Text(word))  # the reader is woken by the second, and takes the third along
            await wait_all_tasks_blocked()
            assert (texts(page.written), texts(read)) == ("a", "bc")
            scene.end()
            await wait_all_tasks_blocked()


async def test_a_question_or_an_end_in_a_step_is_the_trackers() -> None:
    page = Page()
    async with at_work() as scene, trio.open_nursery() as nursery:
        with page.of(scene.log.subscribe(holds_back=True)) as reader:
            nursery.start_soon(collect, reader, list[Change]())
            await wait_all_tasks_blocked()
            scene.inbox.begin_step()
            scene.say(Text("a"))
            scene.end()
            assert not page.written
            await wait_all_tasks_blocked()
            assert texts(page.written) == "a"
            assert isinstance(page.written[-1], Ended)
            assert len(scene.saved) == 1


async def test_what_others_append_is_written_too() -> None:
    page = Page()
    async with at_work() as scene, trio.open_nursery() as nursery:
        with page.of(scene.log.subscribe()) as reader:
            nursery.start_soon(collect, reader, list[Change]())
            await wait_all_tasks_blocked()
            scene.tracker.tell(Text("a"))
            assert texts(page.written) == "a"
            scene.end()
            await wait_all_tasks_blocked()
