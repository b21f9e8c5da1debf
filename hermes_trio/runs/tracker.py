"""The tool-lifecycle tracker: the one task that feeds the turn, and the one place where a run ends.

It takes everything that waits in the inbox, feeds the turn and passes the changes on to the reader. Whatever ends the
run (the agent, a disconnect, a stop, a time limit, a stalled reader, our own mistake), it takes what was already said
without waiting, closes what is open, saves the record once, and only then tells how the run ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog
import trio
from attrs import frozen

from hermes_trio.agent.inbox import Inbox
from hermes_trio.core.changes import Change, Ended
from hermes_trio.core.events import Event, merge_text
from hermes_trio.core.outcome import Failure, Outcome, Reason, Status, of_cut
from hermes_trio.core.turn import Turn
from hermes_trio.stores.contract import StoreError

Changes = tuple[Change, ...]

log = structlog.get_logger(__name__)


@frozen
class Hooks:
    """What the run lends to its tracker."""

    save: Callable[[Turn], Awaitable[None]]
    stop: Callable[[Reason], None]  # cancels the run
    why: Callable[[], Reason]  # the reason, once the run is cancelled
    now: Callable[[], float]  # seconds since the run began


@frozen
class Limits:
    """Deadlines of a run, in seconds."""

    run: float = 0.0  # 0 = none
    stall: float = 30.0  # how long a reader may not read while there is something to read
    save: float = 10.0  # how long closing up may take


DEFAULT_LIMITS = Limits()


class Tracker:
    """Follows one run."""

    def __init__(
        self, inbox: Inbox, out: trio.MemorySendChannel[Changes], hooks: Hooks, limits: Limits
    ) -> None:
        self._inbox, self._out, self._hooks, self._limits = inbox, out, hooks, limits
        self._turn = Turn()
        self._unsent: list[Change] = []
        self._is_saved = False
        self.told = of_cut(Reason.SERVER_ERROR)  # how the reader hears it ended; holds if it never does

    async def run(self) -> None:
        """Follow the run to its end, and end it."""
        with self._out:
            try:
                await self._follow()
            except trio.Cancelled:
                with trio.CancelScope(shield=True, deadline=self._latest()):
                    await self._close_up(self._hooks.why())
                raise
            except Exception:
                log.exception("the tracker failed")
                self._hooks.stop(Reason.SERVER_ERROR)
                with trio.CancelScope(shield=True, deadline=self._latest()):
                    await self._close_up(Reason.SERVER_ERROR)

    async def _follow(self) -> None:
        while self._turn.is_open:
            try:
                events = await self._inbox.receive()
            except trio.EndOfChannel:
                break
            self._feed(events)
            await self._pass_on()
        with trio.CancelScope(shield=True, deadline=self._latest()):
            await self._close_up(Reason.SERVER_ERROR)

    def _feed(self, events: list[Event]) -> None:
        for event in merge_text(events):
            self._unsent += self._turn.take(event)

    async def _pass_on(self) -> None:
        """Hand over everything but the end, which has to be saved first."""
        shown = tuple(change for change in self._unsent if not isinstance(change, Ended))
        if not shown:
            return
        with trio.move_on_after(self._limits.stall) as patience:
            await self._send(shown)
        if patience.cancelled_caught:
            await self._give_up(Reason.STALLED_READER)

    async def _send(self, changes: Changes) -> None:
        try:
            await self._out.send(changes)
        except trio.BrokenResourceError:
            await self._give_up(Reason.CLIENT_DISCONNECTED)
        self._unsent = self._unsent[len(changes) :]

    async def _give_up(self, reason: Reason) -> None:
        """Leave by the one way out: as a cancellation of the whole run."""
        self._hooks.stop(reason)
        await trio.sleep_forever()

    async def _close_up(self, reason: Reason) -> None:
        """End the turn if it is still open, save it, tell the reader."""
        self._feed(self._inbox.drain())
        self._unsent += self._turn.cut(reason, self._hooks.now())
        self.told = self._turn.outcome
        await self._save()
        if reason is not Reason.STALLED_READER:
            await self._tell()

    async def _save(self) -> None:
        if self._is_saved:
            return
        try:
            with trio.fail_after(self._limits.save):
                await self._hooks.save(self._turn)
        except (StoreError, trio.TooSlowError) as error:
            log.error("a turn could not be stored", error=str(error) or "the store took too long")
            self._replace_end(_not_stored(self._turn.outcome))
        self._is_saved = True

    def _latest(self) -> float:
        """Closing up is not cut short by what ended the run; this deadline is what bounds it."""
        return trio.current_time() + 2 * self._limits.save

    def _replace_end(self, outcome: Outcome) -> None:
        self.told = outcome
        self._unsent = [
            Ended(outcome, change.at) if isinstance(change, Ended) else change for change in self._unsent
        ]

    async def _tell(self) -> None:
        """Send what is left, the end included. A reader that is gone hears nothing; the record remains."""
        if self._unsent:
            with suppress(trio.BrokenResourceError):
                await self._out.send(tuple(self._unsent))
            self._unsent.clear()


def _not_stored(outcome: Outcome) -> Outcome:
    failure = Failure("The answer could not be stored.", "store_error")
    return Outcome(Status.FAILED, Reason.SERVER_ERROR, failure, outcome.usage)
