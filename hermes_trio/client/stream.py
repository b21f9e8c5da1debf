"""Starting a run and following it to its end, over as many connections as that takes.

Each connection asks for the events after the last one that is known, so nothing is lost and nothing is told twice. What
goes wrong on the way is told as a value; the one who listens decides what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable

import trio
from attrs import define, frozen

from hermes_trio.client.calls import Ask, Caller, Refused, Unreachable
from hermes_trio.client.events import BadEvent, Cancelled, Completed, Event, Failed, read_event
from hermes_trio.client.sse import EndlessFrame, Frames

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # another attempt may find it better


@frozen
class Heard:
    """One event, understood and as it came."""

    event: Event
    data: str


@frozen
class Dropped:
    """The connection is gone; another attempt follows after a pause."""

    why: str
    attempt: int
    pause: float


@frozen
class GaveUp:
    """No attempt is left, or none would help. Nothing follows."""

    why: str
    is_misuse: bool = False


Note = Heard | Dropped | GaveUp


@frozen
class Patience:
    """How often something is tried again, and how long to wait before that."""

    attempts: int = 8
    first: float = 0.25
    longest: float = 5.0

    def pause(self, attempt: int, wanted: float = 0.0) -> float:
        """The wait before an attempt, counted from 1. The server may want more, within reason."""
        doubled = self.first * 2.0 ** min(attempt - 1, 10)
        return min(self.longest, max(doubled, wanted))


PATIENT = Patience()


@define
class _Position:
    """Where a reader stands."""

    seq: int = -1
    is_over: bool = False

    async def tell(self, data: str, notes: trio.MemorySendChannel[Note]) -> None:
        """Pass an event on, if it is new."""
        event = read_event(data)
        if event.seq > self.seq and not self.is_over:
            self.seq = event.seq
            self.is_over = isinstance(event.body, Completed | Failed | Cancelled)
            await notes.send(Heard(event, data))


async def converse(
    caller: Caller,
    ask: Ask,
    notes: trio.MemorySendChannel[Note],
    begun: Callable[[str], None],
    patience: Patience = PATIENT,
) -> None:
    """Start a run and tell all its events; closes the channel at the end.

    Args:
        caller: the server.
        ask: what is wanted.
        notes: takes what is to be told.
        begun: is told the id of the run as soon as there is one.
        patience: for connections that break.
    """
    async with notes:
        try:
            run_id = await _start(caller, ask, notes, patience)
        except Refused as refusal:
            await notes.send(GaveUp(refusal.message, refusal.is_misuse))
        except Unreachable as error:
            await notes.send(GaveUp(error.message))
        else:
            begun(run_id)
            await follow(caller, run_id, notes, patience)


async def _start(caller: Caller, ask: Ask, notes: trio.MemorySendChannel[Note], patience: Patience) -> str:
    """Nobody knows what became of a request without an answer. It is repeated, and still starts one run only."""
    attempt = 1
    while True:
        try:
            return await caller.start(ask)
        except Unreachable as error:
            if attempt > patience.attempts or (attempt == 1 and not error.was_sent):
                raise
            why = error.message
        except Refused as refusal:
            if attempt > patience.attempts or refusal.code != "idempotency_key_pending":
                raise
            why = refusal.message
        pause = patience.pause(attempt)
        await notes.send(Dropped(why, attempt, pause))
        await trio.sleep(pause)
        attempt += 1


async def follow(
    caller: Caller, run_id: str, notes: trio.MemorySendChannel[Note], patience: Patience = PATIENT
) -> None:
    """Tell all events of a run in order, each once, until the last. The channel is left open.

    An attempt that brought something new starts the count anew.
    """
    position, failed = _Position(), 0
    while True:
        before = position.seq
        trouble = await _listen(caller, run_id, position, notes)
        if position.is_over:
            return
        failed = 1 if position.seq > before else failed + 1
        if trouble.is_final or failed > patience.attempts:
            await notes.send(GaveUp(trouble.why))
            return
        pause = patience.pause(failed, trouble.wait)
        await notes.send(Dropped(trouble.why, failed, pause))
        await trio.sleep(pause)


@frozen
class _Trouble:
    why: str
    is_final: bool = False
    wait: float = 0.0


async def _listen(
    caller: Caller, run_id: str, position: _Position, notes: trio.MemorySendChannel[Note]
) -> _Trouble:
    """One connection, up to its end. Returns why it ended."""
    headers = {"Last-Event-ID": str(position.seq)} if position.seq >= 0 else {}
    try:
        async with caller.pieces("GET", f"/v1/runs/{run_id}/events", None, headers) as pieces:
            frames = Frames()
            async for piece in pieces:
                for data in frames.feed(piece):
                    await position.tell(data, notes)
    except Refused as refusal:
        return _Trouble(refusal.message, refusal.status not in _PASSING, refusal.retry_after)
    except (Unreachable, BadEvent, EndlessFrame) as error:
        return _Trouble(str(error))
    return _Trouble("the connection was closed")
