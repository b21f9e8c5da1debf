"""One execution of an agent as Trio tasks.

A run lives in the nursery of its owner: a request's, or the server's. Inside, it has a scope of its own (to be stopped
without its owner), the inbox from the agent's threads to the tracker, and the log from the tracker to the readers.
"""

from __future__ import annotations

import math
from functools import cached_property, partial

import structlog
import trio

from hermes_trio.agent.bridge import Bridge
from hermes_trio.agent.contract import AgentContext
from hermes_trio.agent.desk import Desk
from hermes_trio.agent.inbox import Inbox
from hermes_trio.agent.news import Sign
from hermes_trio.agent.port import Words
from hermes_trio.core.changes import Ended
from hermes_trio.core.events import ApprovalWanted
from hermes_trio.core.outcome import Reason, of_cut
from hermes_trio.core.progress import Standing
from hermes_trio.core.record import EndedRun, LogBatch
from hermes_trio.core.turn import Turn
from hermes_trio.runs.approvals import Answer, Approvals, Floor
from hermes_trio.runs.flusher import KeptLog
from hermes_trio.runs.helpers import Helpers
from hermes_trio.runs.log import Load, RunLog
from hermes_trio.runs.presence import DETACH, Presence
from hermes_trio.runs.replay import load_changes
from hermes_trio.runs.spec import Persistence, RunSpec, Services
from hermes_trio.runs.tracing import traced
from hermes_trio.runs.tracker import Hooks, Tracker
from hermes_trio.runs.unsaved import UnsavedEnd
from hermes_trio.stores.contract import StoreError

log = structlog.get_logger(__name__)


class Run:
    """Made and run in Trio; may be stopped at any time."""

    def __init__(self, services: Services, order: RunSpec, has_owner: bool = False) -> None:
        self._services, self._order = services, order
        self.header = order.header  # what was known when it began
        self.is_kept = (
            order.keep is Persistence.FULL
        )  # the store knows of it, so that others than its owner may
        # A block of code that owns it is its only listener, and ends it anyway.
        self._policy = DETACH if has_owner else order.policy
        self._words = Words(self.header.run_id, services.clock)
        self._inbox, self._desk = Inbox(characters=services.limits.ahead), Desk()
        self._scope: trio.CancelScope | None = None  # that of its nursery
        self._deadline = math.inf
        self._reason = Reason.NONE
        self.log = RunLog(self._loader()) if self.is_kept else RunLog()
        if self.is_kept:
            self.log.tell_growth(partial(services.flusher.want, self._kept))
        self.ended = Sign()
        self._begun_or_not = Sign()
        self._has_begun = False
        hooks = Hooks(
            self._save,
            self._save_later,
            self.stop,
            self._why,
            self._words.now,
            self._ask,
            services.on_first_text,
        )
        self._tracker = Tracker(self._inbox, self.log, hooks, services.limits)

    @cached_property
    def presence(self) -> Presence:
        """Who listens. A run that has an owner does not care."""
        return Presence(self._policy)

    @cached_property
    def _kept(self) -> KeptLog:
        """What is not in the store yet, of a run that the store knows."""
        return KeptLog(self.header, self.log)

    @property
    def is_over(self) -> bool:
        """Whether all is said and saved, and nothing of the agent is left: what still runs ends by itself, and at once."""
        return self.log.is_closed and self.log.is_left

    @property
    def has_begun(self) -> bool:
        """Whether the store knows of it, or need not; nobody may hear of it before."""
        return self._has_begun

    @property
    def standing(self) -> Standing:
        """Where it stands now."""
        return self._tracker.standing

    async def answer(self, answer: Answer) -> int:
        """Answer questions of the agent; returns how many.

        Raises:
            NotPending: there is nothing to answer.
            NotOffered: the question does not take this answer.
            StoreError: it was to be remembered and cannot be.
        """
        return await self._approvals.answer(answer)

    async def wait_begun(self) -> None:
        """Return when the store knows of the run; nobody may hear of it before.

        Raises:
            StoreError: the store did not take it.
        """
        await self._begun_or_not.wait()
        if not self._has_begun:
            raise StoreError("the store did not take the run")

    async def main(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the agent and the tracker until both are done. Leaves nothing behind but an abandoned thread."""
        self._services.registry.enter(self.header, self)
        try:
            self._hold()
            if self.is_kept:
                await self._begin()
            self._has_begun = True
            self._begun_or_not.set()
            task_status.started()
            await self._run()
        finally:
            self._leave()

    def _hold(self) -> None:
        self._order.slot.hold()
        if self._order.turnstile is not None:
            self._order.turnstile.hold()

    def _leave(self) -> None:
        try:
            if self._has_begun:
                self._settle()
        finally:
            self._services.registry.leave(self.header)
            if self._order.turnstile is not None:
                self._order.turnstile.release()
            self._begun_or_not.set()  # it may never have begun
            self.ended.set()

    async def _begin(self) -> None:
        """The store hears of the run before any client does. Should it refuse, there was no run."""
        try:
            with trio.CancelScope(shield=True), trio.fail_after(self._services.limits.save):
                await self._services.store.begin_run(self._order.header, self._services.owner)
        except trio.TooSlowError:
            self._order.slot.release()
            # It may still begin, when the store gets to it, and must not stay so.
            self._save_later(Turn(), Ended(of_cut(Reason.SERVER_ERROR)))
            raise StoreError("the store took too long to begin a run") from None
        except BaseException:
            self._order.slot.release()
            raise

    async def _run(self) -> None:
        place = self._services.workplace(self._order.turn.profile)
        context = AgentContext(self._order.turn, place.workspace, place.host.config)
        bridge = Bridge(place.host, context, self._inbox, self._words, self._desk)
        self._tracker.begin()
        try:
            with traced(self.header) as span:
                async with trio.open_nursery() as nursery:
                    self._take(nursery)
                    nursery.start_soon(bridge.run, self._why, self._agent_left)
                    await self._tracker.run()
                    self._helpers.stop()
                span.ended(self._tracker.told)
        except* Exception:
            # The tracker has told how the run ended; what is left is to know about it.
            log.exception("a run failed", run_id=self.header.run_id)
        finally:
            if bridge.is_left_behind:
                log.warning(
                    "an agent did not stop and was given up; its slot stays taken", run_id=self.header.run_id
                )

    def _agent_left(self) -> None:
        self._order.slot.release()
        self.log.is_left = True

    def _take(self, nursery: trio.Nursery) -> None:
        """From now on the run is stopped by its nursery's scope; one that was stopped before does not begin."""
        self._helpers = Helpers(nursery)
        if not self._policy.is_detached:
            self._helpers.start(self._end_when_abandoned)
        self._scope = nursery.cancel_scope
        if seconds := self._services.limits.run:
            self._scope.deadline = self._deadline = trio.current_time() + seconds
        if self._reason:
            self._scope.cancel(reason=str(self._reason))

    async def _end_when_abandoned(self) -> None:
        await self.presence.wait_abandoned()
        self.stop(Reason.CLIENT_DISCONNECTED)

    def stop(self, reason: Reason) -> None:
        """End the run from outside. The first reason counts."""
        self._reason = self._reason or reason
        self._tracker.stopping()
        if self._scope is not None:
            self._scope.cancel(reason=str(reason))

    @cached_property
    def _approvals(self) -> Approvals:
        floor = Floor(
            self._tracker.tell,
            self._tracker.questions,
            self._words.now,
            self._services.wall_clock,
        )
        seconds = self._services.limits.approval if self._order.can_ask else 0.0
        return Approvals(self.header, self._services.store, self._desk, floor, seconds)

    def _ask(self, wish: ApprovalWanted) -> None:
        self._helpers.start(self._see_to, wish)

    async def _see_to(self, wish: ApprovalWanted) -> None:
        try:
            await self._approvals.ask(wish)
        except Exception:
            # Our own mistake. Without a word it would look as if the client had left.
            log.exception("a question could not be asked", run_id=self.header.run_id)
            self.stop(Reason.SERVER_ERROR)

    def _why(self) -> Reason:
        """Why the run was cancelled: by a stop, by its time limit, or else because its owner was."""
        if self._reason:
            return self._reason
        return Reason.TIMEOUT if trio.current_time() >= self._deadline else Reason.CLIENT_DISCONNECTED

    def _settle(self) -> None:
        self._services.tally.events += self.log.end
        self._services.on_end(self._tracker.told, self._words.now())
        if self.is_kept:
            self._services.flusher.drop(self._kept)

    def _loader(self) -> Load:
        return partial(load_changes, self._services.store, self.header.principal, self.header.run_id)

    async def _save(self, turn: Turn, end: Ended) -> None:
        if self._order.keep is Persistence.NONE:
            return
        ended = EndedRun(self.header, turn.items, end.outcome, end.at)
        tail = await self._tail(end) if self.is_kept else ()
        await self._services.store.end_run(ended, tail, self._order.to_items(ended))
        if self._order.turnstile is not None:
            # Whoever hears of this end may go on at once, however long the agent takes to leave.
            self._order.turnstile.release()

    def _save_later(self, turn: Turn, end: Ended) -> None:
        """What was said is stored as soon as it can be; and a run that the store knows to have begun must end there."""
        if self._order.keep is Persistence.NONE:
            return
        ended = EndedRun(self.header, turn.items, end.outcome, end.at)
        tail = self._kept.batch((end,)) if self.is_kept else ()
        unsaved = UnsavedEnd(ended, tail, self._order.to_items(ended), has_begun=self.is_kept)
        self._services.flusher.ends.want(unsaved)

    async def _tail(self, end: Ended) -> tuple[LogBatch, ...]:
        """The rest of the log, the end included; it is saved with the record or not at all."""
        self._services.flusher.drop(self._kept)
        await self._kept.settled()
        return self._kept.batch((end,))
