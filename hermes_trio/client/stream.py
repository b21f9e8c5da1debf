"""Start a run and follow it to its end, over as many connections as that takes.

Each connection asks for the events after the last one received, so none is lost and none is delivered twice. Problems
are sent to the receiver as values.
"""

from __future__ import annotations

from collections.abc import Callable

import trio
from attrs import define, frozen

from hermes_trio.client.api_client import ApiClient, RequestRefused, ServerUnreachable, TurnPrompt
from hermes_trio.client.events import (
    FrameTooLong,
    InvalidEvent,
    RunCancelled,
    RunCompleted,
    RunFailed,
    SseParser,
    StreamEvent,
    read_event,
)

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # another attempt may succeed


@frozen
class Received:
    """An event, parsed and as it was received."""

    event: StreamEvent
    data: str


@frozen
class Reconnecting:
    """The connection is lost; another attempt follows after a pause."""

    why: str
    attempt: int
    pause: float


@frozen
class RetriesExhausted:
    """No attempt is left, or none would help. This is the last update."""

    why: str
    is_misuse: bool = False


StreamUpdate = Received | Reconnecting | RetriesExhausted


@frozen
class ReconnectPolicy:
    """How often to retry, and how long to wait before each attempt."""

    attempts: int = 8
    first: float = 0.25
    longest: float = 5.0

    def pause(self, attempt: int, wanted: float = 0.0) -> float:
        """Return the wait before an attempt, counted from 1. The server may ask for more, up to ``longest``."""
        doubled = self.first * 2.0 ** min(attempt - 1, 10)
        return min(self.longest, max(doubled, wanted))


DEFAULT_POLICY = ReconnectPolicy()


@define
class _Position:
    """The position of a reader in the stream."""

    seq: int = -1
    is_over: bool = False

    async def tell(self, data: str, notes: trio.MemorySendChannel[StreamUpdate]) -> None:
        """Pass an event on if it is new."""
        event = read_event(data)
        if event.seq > self.seq and not self.is_over:
            self.seq = event.seq
            self.is_over = isinstance(event.body, RunCompleted | RunFailed | RunCancelled)
            await notes.send(Received(event, data))


async def stream_turn(
    client: ApiClient,
    ask: TurnPrompt,
    notes: trio.MemorySendChannel[StreamUpdate],
    on_started: Callable[[str], None],
    policy: ReconnectPolicy = DEFAULT_POLICY,
) -> None:
    """Start a run and send all its events; closes the channel at the end.

    Args:
        client: the connection to the server.
        ask: the prompt.
        notes: receives the updates.
        on_started: called with the id of the run.
        policy: for connections that break.
    """
    async with notes:
        try:
            run_id = await _start(client, ask, notes, policy)
        except RequestRefused as refusal:
            await notes.send(RetriesExhausted(refusal.message, refusal.is_misuse))
        except ServerUnreachable as error:
            await notes.send(RetriesExhausted(error.message))
        else:
            on_started(run_id)
            await follow(client, run_id, notes, policy)


async def _start(
    client: ApiClient, ask: TurnPrompt, notes: trio.MemorySendChannel[StreamUpdate], policy: ReconnectPolicy
) -> str:
    """Start the run, and repeat a request without an answer: its idempotency key makes it start only one run."""
    attempt = 1
    while True:
        try:
            return await client.start(ask)
        except ServerUnreachable as error:
            if attempt > policy.attempts or (attempt == 1 and not error.was_sent):
                raise
            why = error.message
        except RequestRefused as refusal:
            if attempt > policy.attempts or refusal.code != "idempotency_key_pending":
                raise
            why = refusal.message
        pause = policy.pause(attempt)
        await notes.send(Reconnecting(why, attempt, pause))
        await trio.sleep(pause)
        attempt += 1


async def follow(
    client: ApiClient,
    run_id: str,
    notes: trio.MemorySendChannel[StreamUpdate],
    policy: ReconnectPolicy = DEFAULT_POLICY,
) -> None:
    """Send all events of a run in order, each once, until the last. Leaves the channel open.

    An attempt that received something new resets the count.
    """
    position, failed = _Position(), 0
    while True:
        before = position.seq
        trouble = await _listen(client, run_id, position, notes)
        if position.is_over:
            return
        failed = 1 if position.seq > before else failed + 1
        if trouble.is_final or failed > policy.attempts:
            await notes.send(RetriesExhausted(trouble.why))
            return
        pause = policy.pause(failed, trouble.wait)
        await notes.send(Reconnecting(trouble.why, failed, pause))
        await trio.sleep(pause)


@frozen
class _Trouble:
    why: str
    is_final: bool = False
    wait: float = 0.0


async def _listen(
    client: ApiClient, run_id: str, position: _Position, notes: trio.MemorySendChannel[StreamUpdate]
) -> _Trouble:
    """Read one connection to its end. Return why it ended."""
    headers = {"Last-Event-ID": str(position.seq)} if position.seq >= 0 else {}
    try:
        async with client.pieces("GET", f"/v1/runs/{run_id}/events", None, headers) as pieces:
            frames = SseParser()
            async for piece in pieces:
                for data in frames.feed(piece):
                    await position.tell(data, notes)
    except RequestRefused as refusal:
        return _Trouble(refusal.message, refusal.status not in _PASSING, refusal.retry_after)
    except (ServerUnreachable, InvalidEvent, FrameTooLong) as error:
        return _Trouble(str(error))
    return _Trouble("the connection was closed")
