"""Start a run and follow it to its end, over as many connections as that takes.

Each connection asks for the events after the last one received, so none is lost and none is
delivered twice. Problems are sent to the receiver as values.
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
        """Return the wait before an attempt, counted from 1.

        The server may ask for more, up to ``longest``.
        """
        doubled = self.first * 2.0 ** min(attempt - 1, 10)
        return min(self.longest, max(doubled, wanted))


DEFAULT_POLICY = ReconnectPolicy()


@define
class _Position:
    """The position of a reader in the stream."""

    seq: int = -1
    is_over: bool = False

    async def deliver(self, data: str, updates: trio.MemorySendChannel[StreamUpdate]) -> None:
        """Pass an event on if it is new."""
        event = read_event(data)
        if event.seq > self.seq and not self.is_over:
            self.seq = event.seq
            self.is_over = isinstance(event.body, RunCompleted | RunFailed | RunCancelled)
            await updates.send(Received(event, data))


async def stream_turn(
    client: ApiClient,
    prompt: TurnPrompt,
    updates: trio.MemorySendChannel[StreamUpdate],
    on_started: Callable[[str], None],
    policy: ReconnectPolicy = DEFAULT_POLICY,
) -> None:
    """Start a run and send all its events; closes the channel at the end.

    Args:
        client: the connection to the server.
        prompt: the input of the turn.
        updates: receives events and problems.
        on_started: called with the id of the run.
        policy: for connections that break.
    """
    async with updates:
        try:
            run_id = await _start(client, prompt, updates, policy)
        except RequestRefused as refusal:
            await updates.send(RetriesExhausted(refusal.message, refusal.is_misuse))
        except ServerUnreachable as error:
            await updates.send(RetriesExhausted(error.message))
        else:
            on_started(run_id)
            await follow(client, run_id, updates, policy)


async def _start(
    client: ApiClient,
    prompt: TurnPrompt,
    updates: trio.MemorySendChannel[StreamUpdate],
    policy: ReconnectPolicy,
) -> str:
    """Start the run, and repeat a request without an answer.

    Its idempotency key makes it start only one run.
    """
    attempt = 1
    while True:
        try:
            return await client.start(prompt)
        except ServerUnreachable as error:
            if attempt > policy.attempts or (attempt == 1 and not error.was_sent):
                raise
            why = error.message
        except RequestRefused as refusal:
            if attempt > policy.attempts or refusal.code != "idempotency_key_pending":
                raise
            why = refusal.message
        pause = policy.pause(attempt)
        await updates.send(Reconnecting(why, attempt, pause))
        await trio.sleep(pause)
        attempt += 1


async def follow(
    client: ApiClient,
    run_id: str,
    updates: trio.MemorySendChannel[StreamUpdate],
    policy: ReconnectPolicy = DEFAULT_POLICY,
) -> None:
    """Send all events of a run in order, each once, until the last. Leaves the channel open.

    An attempt that received something new resets the count.
    """
    position, failed = _Position(), 0
    while True:
        before = position.seq
        interruption = await _listen(client, run_id, position, updates)
        if position.is_over:
            return
        failed = 1 if position.seq > before else failed + 1
        if interruption.is_final or failed > policy.attempts:
            await updates.send(RetriesExhausted(interruption.why))
            return
        pause = policy.pause(failed, interruption.wait)
        await updates.send(Reconnecting(interruption.why, failed, pause))
        await trio.sleep(pause)


@frozen
class _Interruption:
    why: str
    is_final: bool = False
    wait: float = 0.0


async def _listen(
    client: ApiClient,
    run_id: str,
    position: _Position,
    updates: trio.MemorySendChannel[StreamUpdate],
) -> _Interruption:
    """Read one connection to its end. Return why it ended."""
    headers = {"Last-Event-ID": str(position.seq)} if position.seq >= 0 else {}
    try:
        async with client.stream("GET", f"/v1/runs/{run_id}/events", None, headers) as chunks:
            parser = SseParser()
            async for chunk in chunks:
                for data in parser.feed(chunk):
                    await position.deliver(data, updates)
    except RequestRefused as refusal:
        return _Interruption(refusal.message, refusal.status not in _PASSING, refusal.retry_after)
    except (ServerUnreachable, InvalidEvent, FrameTooLong) as error:
        return _Interruption(str(error))
    return _Interruption("the connection was closed")
