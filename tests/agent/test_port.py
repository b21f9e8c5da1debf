"""The mouthpieces: what an agent says becomes an event that nobody can change any more."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from hermes_trio.agent.desk import Desk
from hermes_trio.agent.event_queue import EventQueue, RunEnded
from hermes_trio.agent.port import AsyncPort, Port, Words
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


def say_everything(say: Port) -> None:
    say.text("a")
    say.text(None)
    say.text("")
    say.reasoning("r")
    say.reasoning(None)
    say.tool_started("c", "t", {"x": {1}})
    say.tool_output("c", "half")
    say.tool_completed("c", {"k": 1}, is_error=True)
    say.tool_noticed("n")
    say.tool_completed("d", None)


EVERYTHING: list[Event] = [
    Text("a"),
    Reasoning("r"),
    ToolStarted("c", "t", {"x": [1]}, 1.0),
    ToolOutput("c", "half"),
    ToolCompleted("c", "{'k': 1}", True, 2.0),
    ToolAnnounced("n", {}, 3.0),
    ToolCompleted("d", "", False, 4.0),
]


async def test_a_thread_can_say_everything() -> None:
    inbox = EventQueue()
    await trio.to_thread.run_sync(say_everything, Port(inbox, Words("run-1", Ticks()), Desk()))
    assert inbox.drain() == EVERYTHING


async def test_a_task_can_say_everything() -> None:
    inbox = EventQueue()
    say = AsyncPort(inbox, Words("run-1", Ticks()), Desk())
    await say.text("a")
    await say.text(None)
    await say.reasoning("r")
    await say.reasoning("")
    await say.tool_started("c", "t", {"x": {1}})
    await say.tool_output("c", "half")
    await say.tool_completed("c", {"k": 1}, is_error=True)
    await say.tool_noticed("n")
    await say.tool_completed("d", None)
    assert inbox.drain() == EVERYTHING


async def test_arguments_are_copied_when_they_are_said() -> None:
    inbox = EventQueue()
    args: dict[str, Any] = {"list": [1]}
    Port(inbox, Words("r"), Desk()).tool_started("c", "t", args)
    args["list"].append(2)
    [event] = inbox.drain()
    assert isinstance(event, ToolStarted)
    assert event.args == {"list": [1]}


@pytest.mark.parametrize(("given", "kept"), [(None, {}), ([1], {"value": [1]}), ("x", {"value": "x"})])
async def test_odd_arguments_become_an_object(given: Any, kept: dict[str, Any]) -> None:
    inbox = EventQueue()
    Port(inbox, Words("r"), Desk()).tool_started("c", "t", given)
    [event] = inbox.drain()
    assert isinstance(event, ToolStarted)
    assert event.args == kept


async def test_a_tool_block_shows_the_call_for_as_long_as_it_runs() -> None:
    inbox = EventQueue()
    say = Port(inbox, Words("run-1", Ticks()), Desk())
    with say.tool("t", {"a": 1}) as call:
        call.result = "fine"
    with pytest.raises(ValueError, match="no"), say.tool("t"):
        raise ValueError("no")
    assert inbox.drain() == [
        ToolStarted("call_run-1_1", "t", {"a": 1}, 1.0),
        ToolCompleted("call_run-1_1", "fine", False, 2.0),
        ToolStarted("call_run-1_2", "t", {}, 3.0),
        ToolCompleted("call_run-1_2", "ValueError: no", True, 4.0),
    ]


async def test_a_tool_block_of_a_task_does_the_same() -> None:
    inbox = EventQueue()
    say = AsyncPort(inbox, Words("run-1", Ticks()), Desk())
    async with say.tool("t") as call:
        call.result, call.is_error = "bad", True
    with pytest.raises(ValueError, match="no"):
        async with say.tool("t"):
            raise ValueError("no")
    assert [event for event in inbox.drain() if isinstance(event, ToolCompleted)] == [
        ToolCompleted("call_run-1_1", "bad", True, 2.0),
        ToolCompleted("call_run-1_2", "ValueError: no", True, 4.0),
    ]


def _speak_after_the_end(inbox: EventQueue, say: Port) -> None:
    inbox.close()
    say.text("nobody hears")


async def test_a_tool_block_lets_the_end_of_the_run_pass() -> None:
    inbox = EventQueue()
    say = Port(inbox, Words("r"), Desk())
    with pytest.raises(RunEnded), say.tool("t"):
        _speak_after_the_end(inbox, say)
    assert [type(event) for event in inbox.drain()] == [ToolStarted]


async def test_a_stopped_port_ends_a_sleep_at_once() -> None:
    say = Port(EventQueue(), Words("r"), Desk())
    before = say.stopped
    say.sleep(0)
    say.stop()
    assert (before, say.stopped) == (False, True)
    with pytest.raises(RunEnded):
        say.sleep(1000)


async def test_a_task_that_speaks_into_a_full_inbox_waits() -> None:
    inbox = EventQueue(max_events=1)
    say = AsyncPort(inbox, Words("r"), Desk())
    events: list[Event] = []

    async def speak() -> None:
        for n in range(5):
            await say.text(str(n))
        inbox.close_send()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(speak)
        for _ in range(5):
            events += await inbox.receive()
    assert events == [Text(str(n)) for n in range(5)]
