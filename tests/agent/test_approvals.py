"""Pending approval requests: each gets its own answer, and none waits forever."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.agent.approvals import PendingApprovals
from hermes_trio.agent.emitter import AsyncEmitter, Emitter, EventFactory
from hermes_trio.agent.event_queue import EventQueue, RunEnded
from hermes_trio.core.approvals import Decision
from hermes_trio.core.events import AnsweredBy, ApprovalRequest, Choice

YES = Decision(Choice.ONCE, AnsweredBy.CLIENT)
NO = Decision(Choice.DENY, AnsweredBy.TIMEOUT)


def test_each_answer_reaches_its_request() -> None:
    approvals = PendingApprovals()
    first, second = approvals.open("a"), approvals.open("b")
    approvals.resolve("b", NO)
    approvals.resolve("a", YES)
    assert (first.wait(), second.wait()) == (YES, NO)


def test_an_answer_without_a_pending_request_is_ignored() -> None:
    approvals = PendingApprovals()
    approvals.resolve("a", YES)
    waiting = approvals.open("a")
    approvals.resolve("a", YES)
    approvals.resolve("a", NO)
    assert waiting.wait() == YES


def test_closing_ends_pending_and_later_requests() -> None:
    approvals = PendingApprovals()
    waiting = [approvals.open(name) for name in "abc"]
    approvals.close()
    approvals.close()
    for each in waiting:
        with pytest.raises(RunEnded):
            each.wait()
    with pytest.raises(RunEnded):
        approvals.open("d")


async def test_a_thread_blocks_until_its_request_is_answered() -> None:
    queue, approvals = EventQueue(), PendingApprovals()
    emitter = Emitter(queue, EventFactory("run-123456789012"), approvals)
    decisions: list[Decision] = []

    def work() -> None:
        decisions.append(
            emitter.ask("rm x", "api_key=verysecret", ["a", "b"], "c1", allow_permanent=False)
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, work)
        (wish,) = await queue.receive()
        assert isinstance(wish, ApprovalRequest)
        assert (wish.approval_id, wish.call_id, wish.command) == (
            "appr_123456789012_1",
            "c1",
            "rm x",
        )
        assert (wish.patterns, wish.allow_permanent) == (("a", "b"), False)
        assert "verysecret" not in wish.description
        approvals.resolve(wish.approval_id, NO)
    assert decisions == [NO]


async def test_a_task_waits_until_its_request_is_answered() -> None:
    queue, approvals = EventQueue(), PendingApprovals()
    emitter = AsyncEmitter(queue, EventFactory("run"), approvals)
    decisions: list[Decision] = []

    async def work() -> None:
        decisions.append(await emitter.ask("rm x"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        (wish,) = await queue.receive()
        assert isinstance(wish, ApprovalRequest)
        assert wish.patterns == ("rm x",), "without patterns the command is what is remembered"
        approvals.resolve(wish.approval_id, YES)
    assert decisions == [YES]


async def test_closing_wakes_a_waiting_task() -> None:
    approvals = PendingApprovals()
    emitter = AsyncEmitter(EventQueue(), EventFactory("run"), approvals)
    heard: list[str] = []

    async def work() -> None:
        try:
            await emitter.ask("x")
        except RunEnded:
            heard.append("ended")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await wait_all_tasks_blocked()
        approvals.close()
    assert heard == ["ended"]
