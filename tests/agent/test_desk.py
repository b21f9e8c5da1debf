"""Where questions wait: each gets its own answer, and none waits for ever."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.agent.desk import Desk
from hermes_trio.agent.event_queue import EventQueue, RunEnded
from hermes_trio.agent.port import AsyncPort, Port, Words
from hermes_trio.core.approvals import Decision
from hermes_trio.core.events import AnsweredBy, ApprovalRequest, Choice

YES = Decision(Choice.ONCE, AnsweredBy.CLIENT)
NO = Decision(Choice.DENY, AnsweredBy.TIMEOUT)


def test_answers_find_their_questions() -> None:
    desk = Desk()
    first, second = desk.open("a"), desk.open("b")
    desk.give("b", NO)
    desk.give("a", YES)
    assert (first.wait(), second.wait()) == (YES, NO)


def test_an_answer_that_nobody_waits_for_goes_nowhere() -> None:
    desk = Desk()
    desk.give("a", YES)
    waiting = desk.open("a")
    desk.give("a", YES)
    desk.give("a", NO)
    assert waiting.wait() == YES


def test_closing_tells_everybody_and_lets_nobody_in() -> None:
    desk = Desk()
    waiting = [desk.open(name) for name in "abc"]
    desk.close()
    desk.close()
    for each in waiting:
        with pytest.raises(RunEnded):
            each.wait()
    with pytest.raises(RunEnded):
        desk.open("d")


async def test_a_thread_asks_and_waits() -> None:
    inbox, desk = EventQueue(), Desk()
    port = Port(inbox, Words("run-123456789012"), desk)
    decisions: list[Decision] = []

    def work() -> None:
        decisions.append(port.ask("rm x", "api_key=verysecret", ["a", "b"], "c1", allow_permanent=False))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, work)
        (wish,) = await inbox.receive()
        assert isinstance(wish, ApprovalRequest)
        assert (wish.approval_id, wish.call_id, wish.command) == ("appr_123456789012_1", "c1", "rm x")
        assert (wish.patterns, wish.allow_permanent) == (("a", "b"), False)
        assert "verysecret" not in wish.description
        desk.give(wish.approval_id, NO)
    assert decisions == [NO]


async def test_a_task_asks_and_waits() -> None:
    inbox, desk = EventQueue(), Desk()
    say = AsyncPort(inbox, Words("run"), desk)
    decisions: list[Decision] = []

    async def work() -> None:
        decisions.append(await say.ask("rm x"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        (wish,) = await inbox.receive()
        assert isinstance(wish, ApprovalRequest)
        assert wish.patterns == ("rm x",), "without patterns the command is what is remembered"
        desk.give(wish.approval_id, YES)
    assert decisions == [YES]


async def test_a_task_that_waits_hears_of_the_end() -> None:
    desk = Desk()
    say = AsyncPort(EventQueue(), Words("run"), desk)
    heard: list[str] = []

    async def work() -> None:
        try:
            await say.ask("x")
        except RunEnded:
            heard.append("ended")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await wait_all_tasks_blocked()
        desk.close()
    assert heard == ["ended"]
