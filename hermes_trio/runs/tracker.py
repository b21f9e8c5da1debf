"""The tool-lifecycle tracker: the task that feeds a run's turn, and the one place where a run ends.

It receives batches of events from the event queue, feeds the turn and appends the changes to the
run log. Whatever ends the run (the agent, a disconnect, a stop, a time limit, a stalled reader, a
bug of ours), it drains what was already emitted without waiting, closes what is open, saves the
record once, and only then announces the end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import structlog
import trio
from attrs import frozen

from hermes_trio.agent.event_queue import MAX_CHARS, EventQueue
from hermes_trio.core.changes import ApprovalRequested, Change, Ended, TextAdded
from hermes_trio.core.events import ApprovalRequest, Event, Finished
from hermes_trio.core.messages import CallItem
from hermes_trio.core.outcome import Failure, Outcome, Reason, Status
from hermes_trio.core.run_status import RunStateMachine, RunStatus
from hermes_trio.core.state import ENDED_STATES, TurnState
from hermes_trio.core.turn import Continuation, Turn
from hermes_trio.runs.log import RunLog
from hermes_trio.stores.base import StoreError

log = structlog.get_logger(__name__)


@frozen
class RunCallbacks:
    """What a run provides to its tracker."""

    # Save the end of the run. Both return whether clients may learn of it: not if another node has
    # taken over the run, and ends it.
    save: Callable[[Turn, Ended], Awaitable[bool]]
    save_later: Callable[[Turn, Ended], bool]  # the store failed
    stop: Callable[[Reason], None]  # cancels the run
    cancel_reason: Callable[[], Reason]  # why the run was cancelled
    now: Callable[[], float]  # seconds since the run began
    request_approval: Callable[[ApprovalRequest], None]
    first_text: Callable[[float], None] = lambda seconds: None  # noqa: ARG005 - called once, with the first text
    # what is left to the next run; None if the run waits for the answers to its approval requests
    suspend: Callable[[Continuation], None] | None = None


@frozen
class RunLimits:
    """Deadlines of a run, in seconds, and how much may be buffered in it."""

    run: float = 0.0  # 0 = none
    stall: float = 30.0  # how long a client may not read while there is something to read
    save: float = 10.0  # how long saving the end may take
    approval: float = 300.0  # how long an approval request waits for its answer
    ahead: int = MAX_CHARS  # characters that the agent may be ahead of its reader


DEFAULT_LIMITS = RunLimits()


class Tracker:
    """Follows one run to its end."""

    def __init__(
        self, queue: EventQueue, out: RunLog, callbacks: RunCallbacks, limits: RunLimits
    ) -> None:
        self._queue, self._out, self._callbacks, self._limits = queue, out, callbacks, limits
        self._turn = Turn()
        self._unhandled: list[Event] = []
        self._is_broken = False  # an event was emitted that could not be recorded
        self._end = Ended(
            Outcome.from_cancellation(Reason.SERVER_ERROR)
        )  # stands if even ending the turn fails
        self._is_saved = False
        self._progress = RunStateMachine()
        self._has_text = False
        self._can_suspend = callbacks.suspend is not None
        self._receiving = trio.CancelScope()

    @property
    def status(self) -> RunStatus:
        """The state of the run."""
        return self._progress.status

    @property
    def outcome(self) -> Outcome:
        """How clients learn that the run ended."""
        return self._end.outcome

    @property
    def calls(self) -> tuple[CallItem, ...]:
        """The tool calls of the run, without those that are left to the run that continues it."""
        items = self._turn.items
        return tuple(item for item in items if isinstance(item, CallItem) and not item.is_deferred)

    def questions(self) -> tuple[ApprovalRequested, ...]:
        """Return the approval requests that are not answered yet."""
        return self.status.open_approvals

    def begin(self) -> None:
        """Note that the agent is about to be made."""
        self._progress.begin()

    def stopping(self) -> None:
        """Note that the run was told to end. A run that has ended stays as it is."""
        if self.status.state not in ENDED_STATES:
            self._progress.stop()

    def record(self, event: Event) -> None:
        """Record an event that does not come from the agent."""
        self._feed([event])
        if self._can_suspend and self._turn.is_waiting:
            self._receiving.cancel()

    async def run(self) -> None:
        """Follow the run to its end, and end it."""
        try:
            await self._follow()
        except trio.Cancelled:
            await self._finish(self._callbacks.cancel_reason())  # noqa: ASYNC102, ASYNC120 - saving shields and bounds itself
            raise
        except Exception:
            log.exception("the tracker failed")
            self._is_broken = True
            self._callbacks.stop(Reason.SERVER_ERROR)
            await self._finish(Reason.SERVER_ERROR)
        finally:
            self._out.close()
            # They refer to the run, which refers to this tracker: without this, a run that is over
            # would wait for the garbage collector, which runs rarely in this process.
            del self._callbacks

    async def _follow(self) -> None:
        while self._turn.state is TurnState.OPEN:
            if self._can_suspend and self._turn.is_waiting:
                await self._suspend()
                return
            try:
                events = await self._receive()
            except trio.EndOfChannel:
                break
            self._handle(events)
            del events  # they are in the log now, and a slow reader may keep this task waiting
            if not self._out.has_room:
                await self._wait_for_readers()
        await self._finish(Reason.SERVER_ERROR)

    async def _receive(self) -> list[Event]:
        """Return what the agent has emitted; nothing if the run is to be suspended before there is anything."""
        if not self._can_suspend:
            return await self._queue.receive()
        with trio.CancelScope() as self._receiving:
            return await self._queue.receive()
        return []

    def _handle(self, events: list[Event]) -> None:
        """Record what the agent emitted.

        An approval request is recorded when it is known that one is needed.
        """
        if ApprovalRequest in map(type, events):
            for request in [event for event in events if isinstance(event, ApprovalRequest)]:
                self._callbacks.request_approval(request)
            events = [event for event in events if not isinstance(event, ApprovalRequest)]
        self._feed(events)

    def _feed(self, events: Sequence[Event]) -> None:
        self._unhandled += events
        changes: list[Change] = []
        try:
            while self._unhandled:
                changes += self._turn.take(self._unhandled.pop(0))
        finally:
            # Even if one event fails: what the turn took before it must reach the subscribers.
            self._append_open(changes)

    def _append_open(self, changes: list[Change]) -> None:
        """Append everything but the end, which has to be saved first."""
        if changes and isinstance(changes[-1], Ended):
            self._end = changes.pop()  # type: ignore[assignment]  # just checked
        if changes:
            self._append(tuple(changes))

    def _append(self, changes: tuple[Change, ...]) -> None:
        for change in changes:
            if type(change) is not TextAdded:  # by far the most frequent one changes no status
                self._progress.take(change)
        self._out.append(changes)
        if not self._has_text and TextAdded in map(type, changes):
            self._has_text = True
            self._callbacks.first_text(self._callbacks.now())

    async def _wait_for_readers(self) -> None:
        with trio.move_on_after(self._limits.stall) as scope:
            await self._out.wait_writable()
        if scope.cancelled_caught:
            # Leave by the one way out: a cancellation of the whole run.
            self._callbacks.stop(
                Reason.SERVER_ERROR if self._out.is_store_behind else Reason.STALLED_READER
            )
            await trio.sleep_forever()

    async def _suspend(self) -> None:
        """End the turn with its approval requests, save it, pass its agent on, and announce the end."""
        changes, continuation = self._turn.suspend(self._callbacks.now())
        self._append_open(list(changes))
        may_announce = await self._save()
        self._is_saved = True
        if not may_announce:
            return
        if self._callbacks.suspend is not None and self._end.outcome.status is Status.COMPLETED:
            # Before clients learn of the requests: they may answer at once.
            self._callbacks.suspend(continuation)
        self._append((self._end,))

    async def _finish(self, reason: Reason) -> None:
        """End the turn if it is still open, save it, announce the end.

        The end of a run that was taken over is not announced: its log then ends as if it had been
        cut, and clients read on at the node that ends the run.
        """
        self._drain()
        if self._turn.state is TurnState.OPEN:
            self._append_open(list(self._turn.cancel(reason, self._callbacks.now())))
        if not self._is_saved:
            may_announce = await self._save()
            self._is_saved = True
            if may_announce:
                self._append((self._end,))

    def _drain(self) -> None:
        """Record everything that was emitted.

        What cannot be recorded must not keep the run from ending.
        """
        drained = [event for event in self._queue.drain() if not isinstance(event, ApprovalRequest)]
        events = [*self._unhandled, *drained]
        self._unhandled.clear()
        for event in events:
            # An answer with a gap is not complete, whatever its agent reports.
            if self._is_broken and isinstance(event, Finished):
                continue
            try:
                self._append_open(list(self._turn.take(event)))
            except Exception:
                log.exception("an event of an agent could not be recorded")
                self._is_broken = True

    async def _save(self) -> bool:
        """Save the end. Return whether clients may learn of it."""
        for _ in range(2):
            try:
                # The one deadline of saving. Whatever else ends this block early leads to a later
                # attempt, too.
                with trio.CancelScope(shield=True, relative_deadline=self._limits.save):
                    return await self._callbacks.save(self._turn, self._end)
            except StoreError as error:
                log.error("a run could not be stored", error=str(error))
                break
            except Exception:
                # A bug of ours, perhaps triggered by the moment. Clients must learn an end all the
                # same.
                log.exception("a run could not be stored")
            else:
                log.error("a run could not be stored", error="the store took too long")
                break
        return self._defer_save()

    def _defer_save(self) -> bool:
        """End the run as one whose answer is not stored, and store that when it is possible."""
        failure = Failure("The answer could not be stored.", "store_error")
        outcome = Outcome(Status.FAILED, Reason.SERVER_ERROR, failure, self._end.outcome.usage)
        self._end = Ended(outcome, self._end.at)
        return self._callbacks.save_later(self._turn, self._end)
