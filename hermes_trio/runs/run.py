"""One execution of an agent as Trio tasks.

A run lives in the nursery of its owner: a request's, or the server's. It has a nursery of its own,
so that it can be stopped without its owner, with two tasks in it: the agent runner and the tracker.
The event queue links the first to the second, and the run log links the second to any number of
subscribers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, partial

import structlog
import trio

from hermes_trio.agent.approvals import PendingApprovals
from hermes_trio.agent.emitter import EventFactory
from hermes_trio.agent.event_queue import EventQueue
from hermes_trio.agent.interface import AgentContext
from hermes_trio.agent.runner import AgentRunner, Execution
from hermes_trio.core.approvals import Decision
from hermes_trio.core.changes import Ended
from hermes_trio.core.events import AnsweredBy, ApprovalAnswered, ApprovalRequest
from hermes_trio.core.messages import CallItem
from hermes_trio.core.outcome import Outcome, Reason
from hermes_trio.core.records import EndedRun, LogBatch
from hermes_trio.core.run_status import RunStatus
from hermes_trio.core.state import CallState
from hermes_trio.core.turn import Continuation, Turn
from hermes_trio.runs.approvals import (
    ApprovalContext,
    ApprovalResponse,
    Approvals,
    OpenQuestion,
)
from hermes_trio.runs.disconnects import ClientHandle, ConnectedClients
from hermes_trio.runs.log import Load, RunLog, load_changes
from hermes_trio.runs.persistence import RETRY_SECONDS, UnsavedEnd, UnsavedLog
from hermes_trio.runs.spec import ContinuedRun, Persistence, RunSpec, Services
from hermes_trio.runs.suspension import SuspendedRun
from hermes_trio.runs.tracker import RunCallbacks, Tracker
from hermes_trio.stores.base import LeasedStore, StoreError
from hermes_trio.tracing import run_span

log = structlog.get_logger(__name__)


class JobChanged(Exception):
    """The run of a job has begun elsewhere, or the job is not what it was when it was read."""


class Run:
    """Create and run it in Trio. It may be stopped at any time."""

    def __init__(
        self,
        services: Services,
        spec: RunSpec,
        has_owner: bool = False,
        agent_nursery: trio.Nursery | None = None,
    ) -> None:
        self._services, self._spec = services, spec
        self._agent_nursery = agent_nursery  # for agents that may outlive their run
        self.header = spec.header
        self.is_stored = (
            spec.persistence is Persistence.FULL
        )  # the store knows of it, so other clients may too
        # A block of code that owns the run is its only subscriber, and ends it anyway.
        self._ends_with_clients = not has_owner and not spec.on_disconnect.is_detached
        self._execution = (
            Execution(
                EventQueue(max_chars=services.limits.ahead),
                EventFactory(spec.turn.run_id, services.clock),
                PendingApprovals(),
            )
            if spec.continues is None
            else spec.continues.run.execution
        )
        self._events = self._execution.events
        self._is_suspended = False  # its agent waits for another run
        self._is_fenced = self._is_taken_over = False
        self._nursery: trio.Nursery | None = None
        self._deadline = math.inf
        self._reason = Reason.NONE
        self.log = RunLog(
            self._loader() if self.is_stored else None,
            publishes_unsaved=not services.flusher.is_strict,
        )
        if self.is_stored:
            self.log.on_append(partial(services.flusher.mark_dirty, self._unsaved_log))
        self.ended = trio.Event()
        self._begun_or_not = trio.Event()
        self._has_begun = False
        self._is_inserted = self._is_started = False
        self.question: OpenQuestion | None = None  # that the last reply ended with
        callbacks = RunCallbacks(
            save=self._save,
            save_later=self._save_later,
            stop=self.stop,
            cancel_reason=self._cancel_reason,
            now=self._events.now,
            request_approval=self._request_approval,
            first_text=services.on_first_text,
            suspend=self._suspend if spec.can_suspend else None,
        )
        self._tracker = Tracker(self._execution.queue, self.log, callbacks, services.limits)

    @cached_property
    def clients(self) -> ConnectedClients:
        """The connected clients, whose leaving ends the run if its disconnect policy says so."""
        return ConnectedClients(self._spec.on_disconnect)

    @cached_property
    def _unsaved_log(self) -> UnsavedLog:
        """The part of the log that the store does not have yet, for a run with full persistence."""
        return UnsavedLog(self.header, self.log, self._note_taken_over)

    @property
    def has_begun(self) -> bool:
        """Whether the store knows of the run, or need not. Clients must not learn of it before."""
        return self._has_begun

    @property
    def status(self) -> RunStatus:
        """The state of the run."""
        return self._tracker.status

    @property
    def end_user(self) -> str:
        """Whose run it is, "" if unknown."""
        return self._spec.end_user

    @property
    def asks_in_chat(self) -> bool:
        """Whether an approval request ends the reply, to be answered by the next message."""
        return self._spec.asks_in_chat

    def pause(self, question: OpenQuestion) -> bool:
        """End a reply with an approval request: until it is answered, the run needs no client.

        Return False if it has been answered already.
        """
        is_open = any(
            each.approval_id == question.approval_id for each in self.status.open_approvals
        )
        if not is_open or self._nursery is None:
            return False
        self.question = question
        self._nursery.start_soon(self._wait_without_client, self.clients.connect(), question)
        return True

    async def _wait_without_client(self, stand_in: ClientHandle, question: OpenQuestion) -> None:
        try:
            await self._approvals.wait_resolved(question.approval_id)
        finally:
            # Whoever answered is connected by now; if nobody did in time, the policy applies.
            self.question = None
            stand_in.disconnect()

    async def answer(self, answer: ApprovalResponse) -> int:
        """Answer approval requests of the agent; return how many.

        Raises:
            NotPending: there is nothing to answer.
            NotOffered: the request does not offer this answer.
            StoreError: the answer was to be remembered and cannot be.
        """
        return await self._approvals.answer(answer)

    async def wait_begun(self) -> None:
        """Wait until the store knows of the run. Clients must not learn of it before.

        Raises:
            StoreError: the store did not take it.
        """
        await self._begun_or_not.wait()
        if not self._has_begun:
            raise StoreError("the store did not take the run")

    def stop(self, reason: Reason) -> None:
        """End the run from outside. The first reason counts."""
        self._reason = self._reason or reason
        self._tracker.stopping()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel(reason=str(reason))

    def fence(self) -> None:
        """End the run because other nodes may have taken it over.

        Its clients learn nothing more that the store does not have. Does nothing if the store does
        not know of the run.
        """
        if self.is_stored:
            self._is_fenced = True
            self.log.publish_saved_only()
            self.stop(Reason.SERVER_ERROR)

    def _note_taken_over(self) -> None:
        """End the run without a word: another node has taken it over."""
        self._is_taken_over = True
        self.log.close()
        self.stop(Reason.SERVER_ERROR)

    async def main(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the agent and the tracker until both are done.

        Leaves nothing behind but an abandoned thread.
        """
        self._is_started = True
        turn = self._spec.turn
        with structlog.contextvars.bound_contextvars(run_id=turn.run_id, principal=turn.principal):
            self._services.registry.add(self.header, self)
            try:
                self._hold_slots()
                await self.begin()
                self._has_begun = True
                self._begun_or_not.set()
                task_status.started()
                await self._run()
            finally:
                self._leave()

    def _hold_slots(self) -> None:
        self._spec.slot.activate()
        if self._spec.session_lock is not None:
            self._spec.session_lock.activate()

    async def begin(self) -> None:
        """Insert the run into the store before any client learns of it.

        ``main`` does it, too. A run that has begun otherwise must be started, or else abandoned.

        Raises:
            StoreError: the store does not take it. Then there was no run.
            JobChanged: the run of a job has begun elsewhere, or the job has changed.
        """
        if not self.is_stored or self._is_inserted:
            return
        try:
            with trio.CancelScope(shield=True), trio.fail_after(self._services.limits.save):
                await self._insert()
        except trio.TooSlowError:
            self._spec.slot.release()
            # The store may still insert it when it gets to it, and then it must not stay in
            # progress. The run of a job is begun again.
            if self._spec.job is None:
                self._save_later(Turn(), Ended(Outcome.from_cancellation(Reason.SERVER_ERROR)))
            raise StoreError("the store took too long to begin a run") from None
        except StoreError:
            self._spec.slot.release()
            if self._spec.job is None:  # see above
                self._end_if_inserted()
            raise
        except BaseException:
            self._spec.slot.release()
            raise
        self._is_inserted = True

    async def _insert(self) -> None:
        store, ownership = self._services.store, self._services.ownership
        if self._spec.job is None:
            await store.begin_run(self.header, ownership)
        elif not await store.begin_job_run(self._spec.job, self.header, ownership):
            raise JobChanged

    def _end_if_inserted(self) -> None:
        """End a run whose beginning may have been stored although the store failed: its answer got lost."""
        outcome = Outcome.from_cancellation(Reason.SERVER_ERROR)
        end = Ended(outcome)
        tail = self._unsaved_log.encode_nowait((end,))
        ended = EndedRun(self.header, (), outcome, end.at)
        unsaved = UnsavedEnd(ended, tail, (), is_known=False, needs_run=True)
        self._services.flusher.ends.enqueue(unsaved)

    def abandon(self) -> None:
        """End a run that has begun and that nothing will start: its client left in between.

        Does nothing for any other run.
        """
        if self._is_inserted and not self._is_started:
            self._save_later(Turn(), Ended(Outcome.from_cancellation(Reason.CLIENT_DISCONNECTED)))

    async def _run(self) -> None:
        log.info("run started", kind=self.header.kind, model=self.header.stamp.model)
        self._tracker.begin()
        try:
            with run_span(self.header) as span:
                self._events.tool_spans = span.tools
                try:
                    await self._run_in_nursery()
                finally:
                    span.ended(self._tracker.outcome)
        except* Exception:
            # The tracker has announced the end; what is left is to know about the error.
            log.exception("a run failed")
        finally:
            self._nursery = None

    async def _run_in_nursery(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self._begin_scope(self._nursery.cancel_scope)
            self._start_agent(self._nursery)
            if self._ends_with_clients:
                self._nursery.start_soon(self._stop_when_abandoned)
            await self._tracker.run()
            # The agent has exited by now, or is cancelled: what is left waits for clients.
            self._nursery.cancel_scope.cancel()

    def _start_agent(self, nursery: trio.Nursery) -> None:
        """Start the agent, or continue with the one of a suspended run."""
        spec, execution = self._spec, self._execution
        if spec.continues is not None:
            nursery.start_soon(self._hold_agent)
            self._continue(spec.continues)
            return
        environment = self._services.environment(spec.turn.profile)
        workspace = self._services.workspace_of(spec.turn.profile, spec.turn.principal)
        try:
            if not workspace.is_dir():  # nearly always it is there, and then mkdir takes longer
                workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            # The tools that need it report what is missing.
            log.error("the workspace cannot be made", path=str(workspace), error=str(error))
        context = AgentContext(spec.turn, workspace, environment.runtime.config)
        runner = AgentRunner(
            environment.runtime, context, execution.queue, execution.events, execution.approvals
        )
        if spec.can_suspend:
            assert self._agent_nursery is not None  # such a run is started by the supervisor
            self._agent_nursery.start_soon(execution.run, runner, spec.slot.release)
            nursery.start_soon(self._hold_agent)
        else:
            nursery.start_soon(runner.run, self._cancel_reason, self._spec.slot.release)

    async def _hold_agent(self) -> None:
        """Wait for an agent that lives outside of this run, and stop it with the run.

        Its grace period bounds how long that takes.
        """
        try:
            await self._execution.over.wait()
        except trio.Cancelled:
            if not self._is_suspended:
                self._execution.cancel(self._cancel_reason())
                with trio.CancelScope(shield=True):
                    await self._execution.over.wait()
            raise

    # -- suspension --

    def _suspend(self, continuation: Continuation) -> None:
        """Leave the agent, which waits for approvals, to the run that brings the answers."""
        if self._execution.is_cancelled:
            return
        self._is_suspended = True
        assert self._agent_nursery is not None  # see above
        suspended = SuspendedRun(self.header, continuation, self._execution, self._spec.end_user)
        self._services.suspended.add(suspended)
        self._agent_nursery.start_soon(
            self._services.suspended.keep, suspended, self._services.limits.approval
        )

    def _continue(self, continued: ContinuedRun) -> None:
        """Repeat what waited in the suspended run, and answer it."""
        self._services.suspended.take(continued.run)
        self._events.restart()
        continuation = continued.run.continuation
        for call in continuation.calls:
            self._tracker.record(call)
        for request in continuation.requests:
            choice = continued.choices.get(request.approval_id)
            if choice is None:
                self._request_approval(request)
                continue
            self._tracker.record(request)
            by = AnsweredBy.CLIENT
            self._tracker.record(ApprovalAnswered(request.approval_id, choice, by, 0.0))
            self._execution.approvals.resolve(request.approval_id, Decision(choice, by))

    # -- the scope --

    def _begin_scope(self, scope: trio.CancelScope) -> None:
        """Set the time limit. A run that was stopped before it had a scope does not begin."""
        if seconds := self._services.limits.run:
            scope.deadline = self._deadline = trio.current_time() + seconds
        if self._reason:
            scope.cancel(reason=str(self._reason))

    async def _stop_when_abandoned(self) -> None:
        await self.clients.wait_abandoned()
        self.stop(Reason.CLIENT_DISCONNECTED)

    def _cancel_reason(self) -> Reason:
        """Why the run was cancelled.

        By ``stop``, by its time limit, or else because its owner was.
        """
        if self._reason:
            return self._reason
        return (
            Reason.TIMEOUT if trio.current_time() >= self._deadline else Reason.CLIENT_DISCONNECTED
        )

    def _leave(self) -> None:
        try:
            if self._has_begun:
                self._record_end()
        finally:
            self._services.registry.remove(self.header)
            if self._spec.session_lock is not None:
                self._spec.session_lock.release()
            self._begun_or_not.set()  # it may never have begun
            self.ended.set()

    def _record_end(self) -> None:
        outcome, seconds = self._tracker.outcome, self._events.now()
        if self._is_taken_over:
            log.warning("run was taken over", seconds=round(seconds, 3))
        else:
            log.info(
                "run ended",
                status=str(outcome.status),
                reason=str(outcome.reason),
                input_tokens=outcome.usage.input_tokens,
                output_tokens=outcome.usage.output_tokens,
                seconds=round(seconds, 3),
            )
            self._services.on_end(outcome, seconds)
        stats = self._services.stats
        stats.events += self.log.end
        stats.tool_calls.update(map(_call_status, self._tracker.calls))
        if self.is_stored:
            self._services.flusher.discard(self._unsaved_log)

    # -- approvals --

    @cached_property
    def _approvals(self) -> Approvals:
        context = ApprovalContext(
            self._tracker.record,
            self._tracker.questions,
            self._events.now,
            self._services.wall_clock,
        )
        seconds = self._services.limits.approval if self._spec.can_ask else 0.0
        return Approvals(
            self.header,
            self._services.store,
            self._execution.approvals,
            context,
            seconds,
            self._spec.end_user,
        )

    def _request_approval(self, request: ApprovalRequest) -> None:
        assert self._nursery is not None  # the tracker, which calls this, runs inside it
        self._nursery.start_soon(self._handle_approval, request)

    async def _handle_approval(self, request: ApprovalRequest) -> None:
        try:
            await self._approvals.ask(request)
        except Exception:
            # A bug of ours. Without this line it would look as if the client had left.
            log.exception("an approval request failed")
            self.stop(Reason.SERVER_ERROR)

    # -- persistence --

    def _loader(self) -> Load:
        return partial(
            load_changes, self._services.store, self.header.principal, self.header.run_id
        )

    async def _save(self, turn: Turn, end: Ended) -> bool:
        """Save the end of the run. Return False if another node has taken it over."""
        if self._spec.persistence is Persistence.NONE:
            return True
        ended = EndedRun(self.header, turn.items, end.outcome, end.at)
        tail = await self._tail(end) if self.is_stored else ()
        if self._is_taken_over or not await self._store_end(ended, tail):
            self._is_taken_over = True
            return False
        self.log.mark_saved(self.log.end + 1)  # with the end, which is appended next
        if self._spec.session_lock is not None:
            # A client that learns of this end may continue the session at once, however long the
            # agent takes to exit.
            await self._spec.session_lock.release_and_wait()
        return True

    async def _store_end(self, ended: EndedRun, tail: Sequence[LogBatch]) -> bool:
        """Store the end; a shared store gets some more time, until others may take over the run."""
        items = self._spec.to_items(ended) if self._spec.to_items is not None else ()
        while True:
            try:
                return await self._services.store.end_run(
                    ended, tail, items, self._services.ownership
                )
            except StoreError:
                if not self._can_be_taken_over or self._is_fenced:
                    raise
            await trio.sleep(RETRY_SECONDS)

    @property
    def _can_be_taken_over(self) -> bool:
        return self.is_stored and isinstance(self._services.store, LeasedStore)

    def _save_later(self, turn: Turn, end: Ended) -> bool:
        """Store the end as soon as that is possible. Return whether clients may learn of it now.

        A run that the store knows to have begun must end there. If other nodes can take it over,
        they may end it before this end is stored, so clients learn it from the store.
        """
        if self._spec.persistence is Persistence.NONE:
            return True
        ended = EndedRun(self.header, turn.items, end.outcome, end.at)
        tail = self._unsaved_log.encode_nowait((end,)) if self.is_stored else ()
        items = self._spec.to_items(ended) if self._spec.to_items is not None else ()
        unsaved = UnsavedEnd(ended, tail, items, is_known=self.is_stored)
        self._services.flusher.ends.enqueue(unsaved)
        return not self._can_be_taken_over

    async def _tail(self, end: Ended) -> tuple[LogBatch, ...]:
        """Return the rest of the log with the end; it is saved with the record or not at all."""
        self._services.flusher.discard(self._unsaved_log)
        await self._unsaved_log.wait_flushed()
        return await self._unsaved_log.encode((end,))


def _call_status(call: CallItem) -> str:
    """Return how a tool call ended, for the metrics. Those that were cut off are errors, too."""
    has_failed = call.is_error and call.state is CallState.COMPLETED
    return "failed" if has_failed else str(call.state)
