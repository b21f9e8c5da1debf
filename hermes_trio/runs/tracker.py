"""The tool-lifecycle tracker: the one task that feeds the turn, and the one place where a run ends.

It takes everything that waits in the inbox, feeds the turn and appends the changes to the log. Whatever ends the run
(the agent, a disconnect, a stop, a time limit, a stalled reader, our own mistake), it takes what was already said
without waiting, closes what is open, saves the record once, and only then tells how the run ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import structlog
import trio
from attrs import frozen

from hermes_trio.agent.inbox import CHARACTERS, NOBODY_SEES_TO_IT, Inbox
from hermes_trio.core.changes import Change, Ended, TextAdded
from hermes_trio.core.events import ApprovalWanted, Event, Finished, merge_text
from hermes_trio.core.lifecycle import ENDED_STATES
from hermes_trio.core.outcome import Failure, Outcome, Reason, Status, of_cut
from hermes_trio.core.progress import Progress, Questions, Standing
from hermes_trio.core.turn import Turn
from hermes_trio.runs.log import NOBODY, Feeder, RunLog
from hermes_trio.stores.contract import StoreError

log = structlog.get_logger(__name__)


@frozen
class Hooks:
    """What the run lends to its tracker."""

    save: Callable[[Turn, Ended], Awaitable[None]]
    save_later: Callable[[Turn, Ended], None]  # the store failed; this end is the one that is told
    stop: Callable[[Reason], None]  # cancels the run
    why: Callable[[], Reason]  # the reason, once the run is cancelled
    now: Callable[[], float]  # seconds since the run began
    ask: Callable[[ApprovalWanted], None]  # sees to it that a question is asked and answered
    first_text: Callable[[float], None] = lambda seconds: None  # noqa: ARG005 - told once, if there is text


async def _save_nothing(_turn: Turn, _end: Ended) -> None:
    """The run is over."""


NO_HOOKS = Hooks(
    _save_nothing, lambda *_: None, lambda _: None, lambda: Reason.NONE, lambda: 0.0, lambda _: None
)


@frozen
class Limits:
    """Deadlines of a run, in seconds, and how much may wait in it."""

    run: float = 0.0  # 0 = none
    stall: float = 30.0  # how long a reader may not read while there is something to read
    save: float = 10.0  # how long closing up may take
    approval: float = 300.0  # how long somebody has to answer
    ahead: int = CHARACTERS  # how many characters of what the agent says may wait


DEFAULT_LIMITS = Limits()

_FAILED = Ended(of_cut(Reason.SERVER_ERROR))


class Tracker:
    """Follows one run."""

    def __init__(self, inbox: Inbox, out: RunLog, hooks: Hooks, limits: Limits) -> None:
        self._inbox, self._out, self._hooks, self._limits = inbox, out, hooks, limits
        self._turn = Turn()
        self._unheard: list[Event] = []
        self._is_broken = False  # something was said that could not be noted
        self._end = _FAILED  # holds if even ending fails
        self._is_saved = False
        self._progress = Progress()
        self._is_silent = True
        self._is_resting = False
        inbox.seen_to_by(self._find_a_reader)
        out.fed_by(Feeder(self._feed_now, inbox.rouse))

    @property
    def standing(self) -> Standing:
        """Where the run stands."""
        return self._progress.standing

    def questions(self) -> Questions:
        """What nobody has answered yet."""
        return self.standing.questions

    def begin(self) -> None:
        """The agent is about to be made."""
        self._progress.begin()

    def stopping(self) -> None:
        """The run is told to end; one that has ended stays as it is."""
        if self.standing.state not in ENDED_STATES:
            self._progress.stop()

    def tell(self, event: Event) -> None:
        """Something that the agent does not say itself."""
        self._feed([event])

    @property
    def told(self) -> Outcome:
        """How readers hear that the run ended."""
        return self._end.outcome

    async def run(self) -> None:
        """Follow the run to its end, and end it."""
        try:
            await self._follow()
        except trio.Cancelled:
            await self._close_up(self._hooks.why())  # noqa: ASYNC102, ASYNC120 - saving shields and bounds itself
            raise
        except Exception:  # noqa: BLE001 - our own mistake
            self._break_off()
            await self._close_up(Reason.SERVER_ERROR)
        finally:
            self._out.close()
            self._let_go()

    def _let_go(self) -> None:
        """Forget those who know us: a run that is over must not be left to the collector."""
        self._inbox.seen_to_by(NOBODY_SEES_TO_IT)
        self._out.fed_by(NOBODY)
        self._hooks = NO_HOOKS

    async def _follow(self) -> None:
        while self._turn.is_open:
            self._is_resting = True  # while we wait, a reader that waits, too, may be quicker
            try:
                events = await self._inbox.receive()
            except trio.EndOfChannel:
                break
            finally:
                self._is_resting = False
            self._hear(events)
            del events  # they are in the log now; a reader may take its time
            if not self._out.has_room:
                await self._wait_for_readers()
        await self._close_up(Reason.SERVER_ERROR)

    def _find_a_reader(self, at_once: bool) -> bool:
        return self._is_resting and not self._out.is_store_behind and self._out.rouse(at_once)

    def _feed_now(self) -> None:
        """Note what waits, for a reader that wants it at once, and in its task."""
        if not self._is_resting:
            return  # then it is on its way
        try:
            self._feed(self._inbox.take_light())
        except Exception:  # noqa: BLE001 - our own mistake
            self._break_off()

    def _break_off(self) -> None:
        """Something that was said could not be noted."""
        log.exception("the tracker failed")
        self._is_broken = True
        self._hooks.stop(Reason.SERVER_ERROR)

    def _feed(self, events: Sequence[Event]) -> None:
        self._unheard += merge_text(events)
        changes: list[Change] = []
        try:
            while self._unheard:
                changes += self._turn.take(self._unheard.pop(0))
        finally:
            # Even if one event is too much: what the turn took before it must reach the readers too.
            self._note(changes)

    def _hear(self, events: list[Event]) -> None:
        """What the agent says. Its questions are not noted before it is known that somebody has to be asked."""
        if ApprovalWanted in map(type, events):
            for wish in [event for event in events if type(event) is ApprovalWanted]:
                self._hooks.ask(wish)
            events = [event for event in events if type(event) is not ApprovalWanted]
        self._feed(events)

    def _note(self, changes: list[Change]) -> None:
        """Log everything but the end, which has to be saved first."""
        if changes and type(changes[-1]) is Ended:
            self._end = changes.pop()  # type: ignore[assignment]  # just seen to be one
        if changes:
            self._append(tuple(changes))

    def _append(self, changes: tuple[Change, ...]) -> None:
        for change in changes:
            self._progress.take(change)
        self._out.append(changes)
        if self._is_silent and TextAdded in map(type, changes):
            self._is_silent = False
            self._hooks.first_text(self._hooks.now())

    async def _wait_for_readers(self) -> None:
        with trio.move_on_after(self._limits.stall) as patience:
            await self._out.room()
        if patience.cancelled_caught:
            # Leave by the one way out: as a cancellation of the whole run.
            self._hooks.stop(Reason.SERVER_ERROR if self._out.is_store_behind else Reason.STALLED_READER)
            await trio.sleep_forever()

    async def _close_up(self, reason: Reason) -> None:
        """End the turn if it is still open, save it, tell the readers."""
        self._hear_the_rest()
        if self._turn.is_open:
            self._note(list(self._turn.cut(reason, self._hooks.now())))
        if not self._is_saved:
            await self._save()
            self._is_saved = True
            self._append((self._end,))

    def _hear_the_rest(self) -> None:
        """Take everything that was said; what cannot be noted must not keep the run from being ended."""
        drained = self._inbox.drain()
        if not (drained or self._unheard):  # nearly always
            return
        said = [event for event in drained if type(event) is not ApprovalWanted]
        rest = [*self._unheard, *merge_text(said)]
        self._unheard.clear()
        for event in rest:
            # An answer with a hole in it is not complete, whatever its agent thinks.
            if not (self._is_broken and type(event) is Finished):
                self._try_to_note(event)

    def _try_to_note(self, event: Event) -> None:
        try:
            self._note(list(self._turn.take(event)))
        except Exception:
            log.exception("something that an agent said could not be noted")
            self._is_broken = True

    async def _save(self) -> None:
        for _ in range(2):
            try:
                # The one deadline of closing up; whatever else ends this block early leads to putting it off, too.
                with trio.CancelScope(shield=True, relative_deadline=self._limits.save):
                    await self._hooks.save(self._turn, self._end)
                    return
            except StoreError as error:
                log.error("a turn could not be stored", error=str(error))
                break
            except Exception:
                # Our own mistake, perhaps of the moment. If it happens again, readers must hear an end all the same.
                log.exception("a turn could not be stored")
            else:
                log.error("a turn could not be stored", error="the store took too long")
                break
        self._put_off()

    def _put_off(self) -> None:
        """Tell that the answer is not stored, and store it when that is possible."""
        self._end = Ended(_not_stored(self._end.outcome), self._end.at)
        self._hooks.save_later(self._turn, self._end)


def _not_stored(outcome: Outcome) -> Outcome:
    failure = Failure("The answer could not be stored.", "store_error")
    return Outcome(Status.FAILED, Reason.SERVER_ERROR, failure, outcome.usage)
