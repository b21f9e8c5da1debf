"""The questions of one run: asked unless an earlier answer holds, answered once, and never left open.

Who answers is decided here, in one task at a time: a client, the clock, or nobody where nobody listens. What is to be
remembered is durable before the agent hears of it, so that its very next question finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import structlog
import trio
from attrs import evolve, frozen

from hermes_trio.agent.approvals import PendingApprovals
from hermes_trio.core.approvals import Decision, Grant, offered
from hermes_trio.core.changes import ApprovalRequested
from hermes_trio.core.events import AnsweredBy, ApprovalAnswered, ApprovalRequest, Choice, Event
from hermes_trio.core.records import RunHeader
from hermes_trio.stores.base import ApprovalStore, StoreError

log = structlog.get_logger(__name__)

SAVE_SECONDS = 10.0


class NotPending(Exception):
    """There is no such question, or it is answered."""


class NotOffered(Exception):
    """This question does not take this answer."""


@frozen
class Answer:
    """What a client says to the questions of a run."""

    choice: Choice
    approval_id: str = ""  # "" for the oldest
    everything: bool = False  # all that wait now


@frozen
class Floor:
    """What a run lends to its questions."""

    tell: Callable[[Event], None]  # notes it, in the turn and in the log
    waiting: Callable[[], tuple[ApprovalRequested, ...]]
    now: Callable[[], float]  # seconds since the run began
    wall_clock: Callable[[], float]


class Approvals:
    """Made in a Trio task, one for each run."""

    def __init__(
        self,
        header: RunHeader,
        store: ApprovalStore,
        approvals: PendingApprovals,
        floor: Floor,
        seconds: float,
    ) -> None:
        self._header, self._store, self._approvals, self._floor = header, store, approvals, floor
        self._seconds = seconds  # 0: there is nobody to ask
        self._answered: dict[str, trio.Event] = {}

    @cached_property
    def _one_at_a_time(self) -> trio.Lock:
        return trio.Lock()

    async def ask(self, wish: ApprovalRequest) -> None:
        """See to one question, until it is answered."""
        if await self._is_granted(wish):
            self._approvals.resolve(wish.approval_id, Decision(Choice.ONCE, AnsweredBy.REMEMBERED))
            return
        answered = self._answered[wish.approval_id] = trio.Event()
        self._floor.tell(evolve(wish, seconds=self._seconds))
        with trio.move_on_after(self._seconds):
            await answered.wait()
            return
        async with self._one_at_a_time:
            self._settle(wish.approval_id, Choice.DENY, self._why_not())

    async def answer(self, answer: Answer) -> int:
        """Answer some questions; returns how many. Not cut short by the leaving of whoever answers.

        Raises:
            NotPending: there is nothing to answer.
            NotOffered: one of the questions does not take this answer.
            StoreError: it was to be remembered and cannot be. Nothing is answered.
        """
        async with self._one_at_a_time:
            questions = self._meant(answer)
            await self._remember(questions, answer.choice)
            settled = [self._settle(each.approval_id, answer.choice, AnsweredBy.CLIENT) for each in questions]
            return sum(settled)

    def _meant(self, answer: Answer) -> tuple[ApprovalRequested, ...]:
        waiting = self._floor.waiting()
        if answer.approval_id:
            waiting = tuple(each for each in waiting if each.approval_id == answer.approval_id)
        chosen = waiting if answer.everything else waiting[:1]
        if not chosen:
            raise NotPending
        if any(answer.choice not in offered(question) for question in chosen):
            raise NotOffered
        return chosen

    def _settle(self, approval_id: str, choice: Choice, by: AnsweredBy) -> bool:
        """Note an answer and let the agent go on; False if the question is not open any more."""
        if all(question.approval_id != approval_id for question in self._floor.waiting()):
            return False
        self._floor.tell(ApprovalAnswered(approval_id, choice, by, self._floor.now()))
        self._approvals.resolve(approval_id, Decision(choice, by))
        self._answered.pop(approval_id).set()
        return True

    def _why_not(self) -> AnsweredBy:
        return AnsweredBy.TIMEOUT if self._seconds else AnsweredBy.NOBODY

    async def _is_granted(self, wish: ApprovalRequest) -> bool:
        try:
            return await self._store.is_granted(
                self._header.principal, self._header.session_id, wish.patterns
            )
        except StoreError as error:
            log.error("remembered approvals cannot be read, asking", error=str(error))
            return False

    async def _remember(self, questions: tuple[ApprovalRequested, ...], choice: Choice) -> None:
        if choice not in {Choice.SESSION, Choice.ALWAYS}:
            return
        try:
            with trio.fail_after(SAVE_SECONDS, shield=True):
                await self._store.grant(self._grants(questions, choice))
        except trio.TooSlowError:
            raise StoreError("the store took too long to remember an approval") from None

    def _grants(self, questions: tuple[ApprovalRequested, ...], choice: Choice) -> list[Grant]:
        who, made_at = self._header.principal, self._floor.wall_clock()
        where = self._header.session_id if choice is Choice.SESSION else ""
        return [Grant(who, where, pattern, made_at) for each in questions for pattern in each.patterns]
