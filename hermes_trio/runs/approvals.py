"""The approval requests of one run.

Shown unless an earlier grant covers them, answered once, never left open.

A request is answered by a client, by its timeout, or at once by a denial if no client can see it. A
grant that is to be remembered is stored before the agent learns of it, so that its very next
request finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import structlog
import trio
from attrs import evolve, frozen

from hermes_trio.agent.approvals import PendingApprovals
from hermes_trio.core.approvals import Decision, Grant, offered_choices
from hermes_trio.core.changes import ApprovalRequested
from hermes_trio.core.events import AnsweredBy, ApprovalAnswered, ApprovalRequest, Choice, Event
from hermes_trio.core.records import RunHeader
from hermes_trio.core.sessions import is_derived
from hermes_trio.stores.base import ApprovalStore, StoreError

log = structlog.get_logger(__name__)

SAVE_SECONDS = 10.0


class NotPending(Exception):
    """There is no such approval request, or it has been answered."""


class NotOffered(Exception):
    """The approval request does not offer this choice."""


@frozen
class ApprovalResponse:
    """A client's answer to approval requests of a run."""

    choice: Choice
    approval_id: str = ""  # "" for the oldest
    everything: bool = False  # all that are pending


@frozen
class ApprovalContext:
    """What a run provides to its approval requests."""

    record: Callable[[Event], None]  # in the turn and in the log
    pending: Callable[[], tuple[ApprovalRequested, ...]]
    now: Callable[[], float]  # seconds since the run began
    wall_clock: Callable[[], float]


@frozen
class OpenQuestion:
    """An approval request with which a reply ended, to be answered by the next message."""

    approval_id: str
    position: int  # the number of the change after the request, where the next reply begins


class Approvals:
    """Handles the approval requests of one run. Create it in a Trio task."""

    def __init__(
        self,
        header: RunHeader,
        store: ApprovalStore,
        approvals: PendingApprovals,
        context: ApprovalContext,
        seconds: float,
        end_user: str = "",
    ) -> None:
        self._header, self._store, self._approvals, self._context = (
            header,
            store,
            approvals,
            context,
        )
        self._seconds = seconds  # 0: no client can see a request
        self._end_user = end_user
        # Whoever begins a conversation with the same words shares a derived session. What is granted
        # for such a session counts for this run only.
        self._session_id = "" if is_derived(header.session_id) else header.session_id
        self._granted_here: set[str] = set()
        self._answered: dict[str, trio.Event] = {}

    @cached_property
    def _lock(self) -> trio.Lock:
        return trio.Lock()

    async def ask(self, request: ApprovalRequest) -> None:
        """Handle one request until it is answered."""
        if await self._is_granted(request):
            self._approvals.resolve(
                request.approval_id, Decision(Choice.ONCE, AnsweredBy.REMEMBERED)
            )
            return
        answered = self._answered[request.approval_id] = trio.Event()
        self._context.record(evolve(request, seconds=self._seconds))
        with trio.move_on_after(self._seconds):
            await answered.wait()
            return
        async with self._lock:
            by = AnsweredBy.TIMEOUT if self._seconds else AnsweredBy.NOBODY
            self._resolve(request.approval_id, Choice.DENY, by)

    async def wait_resolved(self, approval_id: str) -> None:
        """Wait until a request is not open any more."""
        if approval_id in self._answered:
            await self._answered[approval_id].wait()

    async def answer(self, answer: ApprovalResponse) -> int:
        """Answer requests.

        Return how many. A client that disconnects meanwhile does not cut this short.

        Raises:
            NotPending: there is nothing to answer.
            NotOffered: one of the requests does not offer this choice.
            StoreError: the grant cannot be stored. Nothing is answered.
        """
        async with self._lock:
            questions = self._select(answer)
            await self._remember(questions, answer.choice)
            resolved = [
                self._resolve(each.approval_id, answer.choice, AnsweredBy.CLIENT)
                for each in questions
            ]
            return sum(resolved)

    def _select(self, answer: ApprovalResponse) -> tuple[ApprovalRequested, ...]:
        pending = self._context.pending()
        if answer.approval_id:
            pending = tuple(each for each in pending if each.approval_id == answer.approval_id)
        chosen = pending if answer.everything else pending[:1]
        if not chosen:
            raise NotPending
        if any(answer.choice not in offered_choices(question) for question in chosen):
            raise NotOffered
        return chosen

    def _resolve(self, approval_id: str, choice: Choice, by: AnsweredBy) -> bool:
        """Record an answer and resume the agent.

        Return False if the request is not open any more.
        """
        if all(question.approval_id != approval_id for question in self._context.pending()):
            return False
        self._context.record(ApprovalAnswered(approval_id, choice, by, self._context.now()))
        self._approvals.resolve(approval_id, Decision(choice, by))
        self._answered.pop(approval_id).set()
        return True

    async def _is_granted(self, request: ApprovalRequest) -> bool:
        patterns = tuple(each for each in request.patterns if each not in self._granted_here)
        if request.patterns and not patterns:
            return True
        try:
            return await self._store.is_granted(
                self._header.principal, self._session_id, patterns, self._end_user
            )
        except StoreError as error:
            log.error("remembered approvals cannot be read, asking", error=str(error))
            return False

    async def _remember(self, questions: tuple[ApprovalRequested, ...], choice: Choice) -> None:
        if choice not in {Choice.SESSION, Choice.ALWAYS}:
            return
        if choice is Choice.SESSION and not self._session_id:
            self._granted_here.update(pattern for each in questions for pattern in each.patterns)
            return
        try:
            with trio.fail_after(SAVE_SECONDS, shield=True):
                await self._store.grant(self._grants(questions, choice))
        except trio.TooSlowError:
            raise StoreError("the store took too long to remember an approval") from None

    def _grants(self, questions: tuple[ApprovalRequested, ...], choice: Choice) -> list[Grant]:
        who, made_at = self._header.principal, self._context.wall_clock()
        where = self._session_id if choice is Choice.SESSION else ""
        return [
            Grant(who, where, pattern, made_at, self._end_user)
            for each in questions
            for pattern in each.patterns
        ]
