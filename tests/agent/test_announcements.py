"""Announced calls wait for their id for a moment, and are shown without one otherwise."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.agent.event_queue import HOLD_SECONDS, MAX_HELD, AnnouncementBuffer, EventQueue
from hermes_trio.core.events import (
    Event,
    Finished,
    Reasoning,
    Text,
    ToolAnnounced,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
)

A, B = ToolAnnounced("a"), ToolAnnounced("b")


@pytest.mark.parametrize(
    ("events", "due", "held"),
    [
        pytest.param([A], [], [A], id="nothing but an announcement"),
        pytest.param([A, ToolStarted("1", "a")], [ToolStarted("1", "a"), A], [], id="its start"),
        pytest.param(
            [A, B, ToolStarted("1", "a"), ToolStarted("2", "b")],
            [ToolStarted("1", "a"), A, ToolStarted("2", "b"), B],
            [],
            id="a batch",
        ),
        pytest.param(
            [A, A, ToolStarted("1", "a")], [ToolStarted("1", "a"), A], [A], id="two alike"
        ),
        pytest.param([A, Text("x")], [A, Text("x")], [], id="text"),
        pytest.param([A, Reasoning("x"), B], [A, Reasoning("x")], [B], id="reasoning"),
        pytest.param(
            [A, ToolOutput("1", "x"), B, ToolCompleted("1")],
            [A, ToolOutput("1", "x"), B, ToolCompleted("1")],
            [],
            id="another call",
        ),
        pytest.param([A, ToolStarted("1", "b")], [A, ToolStarted("1", "b")], [], id="another tool"),
        pytest.param([A, ToolStarted("", "a")], [A, ToolStarted("", "a")], [], id="no id"),
        pytest.param([A, Finished()], [A, Finished()], [], id="the end"),
        pytest.param(
            [ToolStarted("1", "a"), A], [ToolStarted("1", "a")], [A], id="started, then announced"
        ),
    ],
)
def test_what_is_due(events: list[Event], due: list[Event], held: list[Event]) -> None:
    together, apart = AnnouncementBuffer(), AnnouncementBuffer()
    assert together.admit([*events], 0.0) == due
    assert [each for event in events for each in apart.admit([event], 0.0)] == due
    assert together.release() == apart.release() == held
    assert together.release() == []


def test_each_announcement_has_its_own_time() -> None:
    buffer = AnnouncementBuffer()
    buffer.admit([A], 10.0)
    buffer.admit([B], 10.0 + HOLD_SECONDS / 2)
    assert buffer.deadline == 10.0 + HOLD_SECONDS
    assert buffer.admit([], 10.0 + HOLD_SECONDS) == [A]
    assert buffer.admit([ToolStarted("1", "b")], 10.0 + HOLD_SECONDS) == [ToolStarted("1", "b"), B]


def test_what_is_held_back_is_bounded() -> None:
    buffer = AnnouncementBuffer()
    assert len(buffer.admit([A] * (MAX_HELD + 3), 0.0)) == 3


# -- in the queue --


async def test_an_announcement_alone_is_received_after_a_moment(mock_clock: MockClock) -> None:
    queue, batches = EventQueue(), list[list[Event]]()

    async def receive() -> None:
        while True:
            batches.append(await queue.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        queue.put_nowait("so ")
        queue.put_nowait(A)
        await wait_all_tasks_blocked()
        assert batches == [[Text("so ")]]
        mock_clock.jump(HOLD_SECONDS)
        await wait_all_tasks_blocked()
        assert batches == [[Text("so ")], [A]]
        nursery.cancel_scope.cancel()


async def test_a_start_meanwhile_comes_first_and_at_once(mock_clock: MockClock) -> None:
    queue = EventQueue()
    queue.put_nowait(A)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def start_later() -> None:
            await wait_all_tasks_blocked()
            queue.put_nowait(ToolStarted("1", "a"))

        assert await queue.receive() == [ToolStarted("1", "a"), A]
    assert trio.current_time() == 0


async def test_a_thread_that_reports_twice(autojump_clock: MockClock) -> None:
    queue = EventQueue()

    def report() -> None:
        for event in (A, B, ToolStarted("1", "a"), ToolStarted("2", "b")):
            queue.put(event)

    await trio.to_thread.run_sync(report)
    assert await queue.receive() == [ToolStarted("1", "a"), A, ToolStarted("2", "b"), B]


async def test_the_end_loses_no_announcement() -> None:
    queue = EventQueue()
    queue.put_nowait(A)
    with trio.CancelScope() as scope:
        scope.cancel()
        await queue.receive()
    queue.close_send()
    assert await queue.receive() == [A]
    with pytest.raises(trio.EndOfChannel):
        await queue.receive()


async def test_an_announcement_that_was_received_is_drained(mock_clock: MockClock) -> None:
    queue = EventQueue()
    queue.put_nowait(A)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.receive)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    queue.put_nowait(B)
    queue.put_nowait(ToolStarted("2", "b"))
    assert queue.drain() == [ToolStarted("2", "b"), B, A]
