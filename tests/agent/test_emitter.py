"""Emitters turn the calls of an agent into immutable events."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from hermes_trio.agent.approvals import PendingApprovals
from hermes_trio.agent.emitter import AsyncEmitter, Emitter, EventFactory
from hermes_trio.agent.event_queue import EventQueue, RunEnded
from hermes_trio.core.events import (
    Event,
    Reasoning,
    Text,
    ToolAnnounced,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
)


class Ticks:
    """A clock that moves a second each time it is read."""

    def __init__(self) -> None:
        self.now = -1.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def say_everything(emitter: Emitter) -> None:
    emitter.text("a")
    emitter.text(None)
    emitter.text("")
    emitter.reasoning("r")
    emitter.reasoning(None)
    emitter.tool_started("c", "t", {"x": {1}})
    emitter.tool_output("c", "half")
    emitter.tool_completed("c", {"k": 1}, is_error=True)
    emitter.tool_announced("n")
    emitter.tool_completed("d", None)


EVERYTHING: list[Event] = [
    Text("a"),
    Reasoning("r"),
    ToolStarted("c", "t", {"x": [1]}, 1.0),
    ToolOutput("c", "half"),
    ToolCompleted("c", "{'k': 1}", True, 2.0),
    ToolAnnounced("n", {}, 3.0),
    ToolCompleted("d", "", False, 4.0),
]


async def test_a_thread_can_emit_every_event() -> None:
    queue = EventQueue()
    await trio.to_thread.run_sync(
        say_everything, Emitter(queue, EventFactory("run-1", Ticks()), PendingApprovals())
    )
    assert queue.drain() == EVERYTHING


async def test_a_task_can_emit_every_event() -> None:
    queue = EventQueue()
    emitter = AsyncEmitter(queue, EventFactory("run-1", Ticks()), PendingApprovals())
    await emitter.text("a")
    await emitter.text(None)
    await emitter.reasoning("r")
    await emitter.reasoning("")
    await emitter.tool_started("c", "t", {"x": {1}})
    await emitter.tool_output("c", "half")
    await emitter.tool_completed("c", {"k": 1}, is_error=True)
    await emitter.tool_announced("n")
    await emitter.tool_completed("d", None)
    assert queue.drain() == EVERYTHING


def made_up(events: EventFactory) -> list[str]:
    """The ids of calls that the agent gives none."""
    announced = events.tool_announced("t", {}), events.tool_started("", "t", {})
    handed_over = events.client_call("", "t", "{}")
    assert all(isinstance(event, ToolAnnounced) for event in announced)
    return [event.call_id for event in (*announced, handed_over)]  # type: ignore[union-attr]


def test_made_up_ids_are_unique_among_all_runs() -> None:
    ids = [*made_up(EventFactory("run_0123456789abcdef")), *made_up(EventFactory("run_f"))]
    assert ids[0] == "call_456789abcdef_1"
    assert len({*ids, EventFactory("run_2").new_call_id()}) == len(ids) + 1


def test_an_agent_may_make_up_the_id_itself() -> None:
    event = EventFactory("run_1").tool_announced("t", {}, "mine")
    assert isinstance(event, ToolAnnounced)
    assert event.call_id == "mine"


async def test_arguments_are_copied_when_they_are_emitted() -> None:
    queue = EventQueue()
    args: dict[str, Any] = {"list": [1]}
    Emitter(queue, EventFactory("r"), PendingApprovals()).tool_started("c", "t", args)
    args["list"].append(2)
    [event] = queue.drain()
    assert isinstance(event, ToolStarted)
    assert event.args == {"list": [1]}


@pytest.mark.parametrize(
    ("given", "kept"), [(None, {}), ([1], {"value": [1]}), ("x", {"value": "x"})]
)
async def test_arguments_of_any_type_become_an_object(given: Any, kept: dict[str, Any]) -> None:
    queue = EventQueue()
    Emitter(queue, EventFactory("r"), PendingApprovals()).tool_started("c", "t", given)
    [event] = queue.drain()
    assert isinstance(event, ToolStarted)
    assert event.args == kept


async def test_a_tool_block_shows_the_call_for_as_long_as_it_runs() -> None:
    queue = EventQueue()
    emitter = Emitter(queue, EventFactory("run-1", Ticks()), PendingApprovals())
    with emitter.tool("t", {"a": 1}) as call:
        call.result = "fine"
    with pytest.raises(ValueError, match="no"), emitter.tool("t"):
        raise ValueError("no")
    assert queue.drain() == [
        ToolStarted("call_run-1_1", "t", {"a": 1}, 1.0),
        ToolCompleted("call_run-1_1", "fine", False, 2.0),
        ToolStarted("call_run-1_2", "t", {}, 3.0),
        ToolCompleted("call_run-1_2", "ValueError: no", True, 4.0),
    ]


async def test_a_tool_block_of_a_task_does_the_same() -> None:
    queue = EventQueue()
    emitter = AsyncEmitter(queue, EventFactory("run-1", Ticks()), PendingApprovals())
    async with emitter.tool("t") as call:
        call.result, call.is_error = "bad", True
    with pytest.raises(ValueError, match="no"):
        async with emitter.tool("t"):
            raise ValueError("no")
    assert [event for event in queue.drain() if isinstance(event, ToolCompleted)] == [
        ToolCompleted("call_run-1_1", "bad", True, 2.0),
        ToolCompleted("call_run-1_2", "ValueError: no", True, 4.0),
    ]


def _speak_after_the_end(queue: EventQueue, emitter: Emitter) -> None:
    queue.close()
    emitter.text("nobody hears")


async def test_a_tool_block_propagates_the_end_of_the_run() -> None:
    queue = EventQueue()
    emitter = Emitter(queue, EventFactory("r"), PendingApprovals())
    with pytest.raises(RunEnded), emitter.tool("t"):
        _speak_after_the_end(queue, emitter)
    assert [type(event) for event in queue.drain()] == [ToolStarted]


async def test_sleep_raises_after_a_stop() -> None:
    emitter = Emitter(EventQueue(), EventFactory("r"), PendingApprovals())
    before = emitter.stopped
    emitter.sleep(0)
    emitter.stop()
    assert (before, emitter.stopped) == (False, True)
    with pytest.raises(RunEnded):
        emitter.sleep(1000)


async def test_a_task_that_emits_into_a_full_queue_waits() -> None:
    queue = EventQueue(max_events=1)
    emitter = AsyncEmitter(queue, EventFactory("r"), PendingApprovals())
    events: list[Event] = []

    async def speak() -> None:
        for n in range(5):
            await emitter.text(str(n))
        queue.close_send()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(speak)
        for _ in range(5):
            events += await queue.receive()
    assert events == [Text(str(n)) for n in range(5)]
