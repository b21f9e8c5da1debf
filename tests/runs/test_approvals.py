"""The questions of one run: asked unless an answer holds, answered once, never left open.

Time is the test's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from attrs import evolve
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.agent.emitter import AsyncEmitter
from hermes_trio.agent.interface import TurnRequest
from hermes_trio.core.approvals import Decision, Grant
from hermes_trio.core.changes import ApprovalRequested, ApprovalResolved, Change
from hermes_trio.core.events import AnsweredBy, Choice
from hermes_trio.core.outcome import Reason
from hermes_trio.core.state import RunState
from hermes_trio.runs.approvals import ApprovalResponse, NotOffered, NotPending
from hermes_trio.runs.run import Run
from hermes_trio.runs.spec import Persistence
from hermes_trio.runs.tracker import RunLimits
from hermes_trio.stores.base import StoreError
from tests.support.run_harness import RecordingStore, RunHarness, rest_of, until_asked

LIMITS = RunLimits(approval=60.0)
NO = ApprovalResponse(Choice.DENY)
ONCE = ApprovalResponse(Choice.ONCE)
Question = dict[str, Any]


class Asker:
    """Asks all its questions at once, as parallel tools do, then the later ones."""

    def __init__(self, *questions: Question, then: Sequence[Question] = ()) -> None:
        self._questions, self._then = questions, then
        self.decisions: list[Decision] = []

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> str:
        """Ask."""
        async with trio.open_nursery() as nursery:
            for question in self._questions:
                nursery.start_soon(self._ask, emitter, question)
        for question in self._then:
            await self._ask(emitter, question)
        return "done"

    async def _ask(self, emitter: AsyncEmitter, question: Question) -> None:
        self.decisions.append(await emitter.ask(**question))


RM: Question = {"command": "rm -r x", "patterns": ["rm"]}


def asking(agent: Asker, store: RecordingStore | None = None, can_ask: bool = True) -> RunHarness:
    """A run of an agent that asks."""
    harness = RunHarness(agent, LIMITS, store)
    harness.order = evolve(harness.order, can_ask=can_ask, persistence=Persistence.FULL)
    return harness


def told(changes: list[Change]) -> list[tuple[Choice, AnsweredBy]]:
    """What became of the questions."""
    return [
        (change.choice, change.by) for change in changes if isinstance(change, ApprovalResolved)
    ]


def questions(run: Run) -> list[ApprovalRequested]:
    """What is open."""
    return list(run.status.open_approvals)


def state(run: Run) -> RunState:
    """Where a run stands."""
    return run.status.state


@pytest.mark.parametrize("choice", [Choice.ONCE, Choice.SESSION, Choice.ALWAYS, Choice.DENY])
async def test_an_answer_lets_the_agent_go_on(choice: Choice) -> None:
    agent = Asker(RM)
    harness = asking(agent)
    async with harness.open() as run:
        (question,) = await until_asked(run)
        assert (question.command, question.seconds) == ("rm -r x", 60.0)
        assert await run.answer(ApprovalResponse(choice)) == 1
        assert told(await rest_of(run)) == [(choice, AnsweredBy.CLIENT)]
    assert agent.decisions == [Decision(choice, AnsweredBy.CLIENT)]
    assert state(run) is RunState.COMPLETED
    harness.check_nothing_left()


async def test_no_answer_is_no(mock_clock: MockClock) -> None:
    agent = Asker(RM)
    harness = asking(agent)
    async with harness.open() as run:
        await until_asked(run)
        mock_clock.jump(59.9)
        await wait_all_tasks_blocked()
        assert state(run) is RunState.WAITING
        mock_clock.jump(0.2)
        assert told(await rest_of(run)) == [(Choice.DENY, AnsweredBy.TIMEOUT)]
        with pytest.raises(NotPending):
            await run.answer(ONCE)
    assert agent.decisions == [Decision(Choice.DENY, AnsweredBy.TIMEOUT)]
    harness.check_nothing_left()


async def test_where_nobody_listens_the_answer_is_no_at_once() -> None:
    agent = Asker(RM)
    async with asking(agent, can_ask=False).open() as run:
        assert told(await rest_of(run)) == [(Choice.DENY, AnsweredBy.NOBODY)]
    assert agent.decisions == [Decision(Choice.DENY, AnsweredBy.NOBODY)]


async def test_the_end_of_the_run_answers() -> None:
    agent = Asker(RM, RM)
    harness = asking(agent)
    async with harness.open() as run:
        assert len(await until_asked(run, 2)) == 2
        run.stop(Reason.STOP_REQUESTED)
        assert state(run) is RunState.STOPPING
        assert told(await rest_of(run)) == [(Choice.DENY, AnsweredBy.RUN_ENDED)] * 2
    assert agent.decisions == []
    assert state(run) is RunState.CANCELLED
    harness.check_nothing_left()


async def test_answers_go_to_the_oldest_to_one_or_to_all() -> None:
    agent = Asker(*({"command": name, "patterns": [name]} for name in "abcd"))
    async with asking(agent).open() as run:
        first, second, third, fourth = await until_asked(run, 4)
        assert await run.answer(ONCE) == 1
        assert questions(run) == [second, third, fourth]
        assert await run.answer(ApprovalResponse(Choice.DENY, third.approval_id)) == 1
        assert questions(run) == [second, fourth]
        for gone in (first, third):
            with pytest.raises(NotPending):
                await run.answer(ApprovalResponse(Choice.ONCE, gone.approval_id))
        assert await run.answer(ApprovalResponse(Choice.ONCE, everything=True)) == 2
    assert [decision.choice for decision in agent.decisions].count(Choice.DENY) == 1


async def test_two_answers_at_once_one_wins() -> None:
    agent = Asker(RM)
    results: list[str] = []

    async def answer(run: Run, answer: ApprovalResponse) -> None:
        try:
            results.append(f"{await run.answer(answer)} {answer.choice}")
        except NotPending:
            results.append("too late")

    async with asking(agent).open() as run:
        await until_asked(run)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer, run, ApprovalResponse(Choice.ALWAYS))
            nursery.start_soon(answer, run, NO)
    assert sorted(results)[1] == "too late"
    assert [f"1 {decision.choice}" for decision in agent.decisions] == sorted(results)[:1]


@pytest.mark.parametrize(
    ("choice", "session_id"), [(Choice.SESSION, "session-1"), (Choice.ALWAYS, "")]
)
async def test_what_is_remembered_is_not_asked_again(choice: Choice, session_id: str) -> None:
    agent = Asker(RM, then=[RM, {"command": "rm -r y", "patterns": ["rm"]}])
    harness = asking(agent)
    async with harness.open() as run:
        await until_asked(run)
        await run.answer(ApprovalResponse(choice))
        assert len(told(await rest_of(run))) == 1, "the others are not even shown"
    remembered = Decision(Choice.ONCE, AnsweredBy.REMEMBERED)
    assert agent.decisions == [Decision(choice, AnsweredBy.CLIENT), remembered, remembered]
    (grant,) = await harness.store.list_grants("ann")
    assert (grant.session_id, grant.pattern) == (session_id, "rm")


async def test_once_is_once() -> None:
    agent = Asker(RM, then=[RM])
    harness = asking(agent)
    async with harness.open() as run:
        for _ in range(2):
            await until_asked(run)
            await run.answer(ONCE)
    assert await harness.store.list_grants("ann") == ()


async def test_always_is_not_taken_where_it_is_not_offered() -> None:
    agent = Asker({**RM, "allow_permanent": False})
    harness = asking(agent)
    async with harness.open() as run:
        await until_asked(run)
        with pytest.raises(NotOffered):
            await run.answer(ApprovalResponse(Choice.ALWAYS))
        await run.answer(ApprovalResponse(Choice.SESSION))
    assert [grant.session_id for grant in await harness.store.list_grants("ann")] == ["session-1"]


class Forgetful(RecordingStore):
    """A store that cannot remember approvals, or cannot read them."""

    def __init__(self, *broken: str) -> None:
        super().__init__()
        self._broken = broken

    async def grant(self, grants: Sequence[Grant]) -> None:
        """Fail, if told to."""
        if "write" in self._broken:
            raise StoreError("the disk is full")
        await super().grant(grants)

    async def is_granted(
        self, principal: str, session_id: str, patterns: tuple[str, ...], end_user: str = ""
    ) -> bool:
        """Fail, if told to."""
        if "read" in self._broken:
            raise StoreError("the disk is gone")
        return await super().is_granted(principal, session_id, patterns, end_user)


async def test_an_answer_that_cannot_be_remembered_is_none() -> None:
    agent = Asker(RM)
    async with asking(agent, Forgetful("write")).open() as run:
        await until_asked(run)
        with pytest.raises(StoreError, match="disk is full"):
            await run.answer(ApprovalResponse(Choice.ALWAYS))
        assert state(run) is RunState.WAITING
        assert await run.answer(ONCE) == 1


async def test_what_cannot_be_read_is_asked() -> None:
    agent = Asker(RM)
    async with asking(agent, Forgetful("read")).open() as run:
        await until_asked(run)
        await run.answer(NO)
    assert agent.decisions == [Decision(Choice.DENY, AnsweredBy.CLIENT)]


class Slow(RecordingStore):
    """A store that never comes to an end with an approval."""

    async def grant(self, grants: Sequence[Grant]) -> None:
        """Hang."""
        await trio.sleep_forever()


async def test_a_store_that_hangs_does_not_hold_the_question(autojump_clock: MockClock) -> None:
    async with asking(Asker(RM), Slow()).open() as run:
        await until_asked(run)
        with pytest.raises(StoreError, match="took too long"):
            await run.answer(ApprovalResponse(Choice.ALWAYS))
        assert await run.answer(NO) == 1
