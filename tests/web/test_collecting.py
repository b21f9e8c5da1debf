"""A run is taken in the task of whoever says something, while the answer in one piece waits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.changes import Ended, TextAdded
from hermes_trio.core.outcome import Reason, of_cut
from hermes_trio.runs.log import KEPT, Changes, RunLog
from hermes_trio.web.collecting import collect

END = Ended(of_cut(Reason.SERVER_ERROR))


class Scene:
    """A log, and what was taken of it in which task."""

    def __init__(self) -> None:
        self.stored: list[TextAdded] = []
        self.log = RunLog(self._load)
        self.taken: list[object] = []
        self.tasks: set[str] = set()
        self.failed: Exception | None = None
        self.is_over = False

    async def _load(self, first: int) -> Changes:
        await trio.lowlevel.checkpoint()
        return tuple(self.stored[first : first + 1_000])

    def say(self, *texts: str) -> None:
        said = tuple(TextAdded(0, text) for text in texts)
        self.stored += said
        self.log.append(said)

    def take(self, changes: Changes) -> None:
        if changes:
            self.tasks.add(trio.lowlevel.current_task().name)
        for change in changes:
            if change == TextAdded(0, "broken"):
                raise ValueError("broken")
            self.taken.append(change)

    async def serve(self) -> None:
        try:
            with self.log.subscribe(holds_back=True) as reader:
                await collect(reader, self.take)
        except ValueError as error:
            self.failed = error
        self.is_over = True


@asynccontextmanager
async def at_work() -> AsyncIterator[Scene]:
    scene = Scene()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.serve, name="own")
        await wait_all_tasks_blocked()
        yield scene
        scene.log.append((END,))
        await wait_all_tasks_blocked()
        assert scene.is_over is (scene.failed is not None)  # the end alone is not all
        scene.log.close()


async def test_all_is_taken_where_it_is_said_and_the_task_wakes_at_the_end() -> None:
    async with at_work() as scene:
        scene.say("a")
        scene.say("b", "c")
        assert scene.taken == scene.stored
    assert scene.taken == [*scene.stored, END]
    assert "own" not in scene.tasks
    assert scene.is_over


async def test_a_mistake_of_ours_is_the_answers_and_not_the_speakers() -> None:
    async with at_work() as scene:
        scene.say("a")
        scene.say("broken")
        scene.say("b")
        await wait_all_tasks_blocked()
        assert str(scene.failed) == "broken"
    assert scene.taken == [TextAdded(0, "a")]


async def test_what_is_in_memory_no_more_is_fetched_in_the_tasks_own_turn() -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene()
        scene.say(*map(str, range(KEPT * 2)))
        scene.log.saved(KEPT * 2)
        nursery.start_soon(scene.serve, name="own")
        await wait_all_tasks_blocked()
        scene.say("late")
        scene.log.append((END,))
        scene.log.close()
    assert scene.taken == [*scene.stored, END]
    assert "own" in scene.tasks
