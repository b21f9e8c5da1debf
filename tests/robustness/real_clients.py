"""Clients that come at random, ask at random, and leave in a random way at a random moment.

All from one seed.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import h2.exceptions
import trio
from attrs import define, field, frozen

from tests.robustness.real_connections import (
    ClientConnection,
    ClientRequest,
    ConnectionEnded,
    Http1Connection,
    Http2Connection,
    Target,
    reset_on_close,
    vanish,
    whole,
)
from tests.robustness.streams import Dialect, ReceivedStream, read_stream
from tests.robustness.violations import VIOLATIONS, Violation

AT_ONCE = 60
LATEST = 0.7  # seconds from the request to the moment of leaving
CLIENT_SECONDS = 60.0  # only a server that hangs makes a visit so long
SECONDS = 1.5  # of the longest turn
_GONE = (trio.BrokenResourceError, trio.ClosedResourceError, OSError, h2.exceptions.ProtocolError)


@define
class ClientResults:
    """What the visitors saw."""

    received: list[ReceivedStream] = field(factory=list)
    ways: Counter[str] = field(factory=Counter)
    statuses: Counter[int] = field(factory=Counter)
    faults: list[str] = field(factory=list)
    vanished: list[trio.SocketStream] = field(factory=list)

    async def forget_the_vanished(self) -> None:
        """Close our ends, which the server must know nothing of any more."""
        for stream in self.vanished:
            reset_on_close(stream.socket)
            await trio.aclose_forcefully(stream)
        self.vanished.clear()


@frozen
class ClientBehaviour:
    """What one client does."""

    line: type[Http1Connection | Http2Connection]
    dialect: Dialect
    load: str
    way: str
    part: float = 1.0  # of the request that is sent
    seconds: float = math.inf  # that it stays after that
    length: float = math.inf  # that it reads


_WAYS1 = ("FIN", "RST", "half-close", "vanish", "no disconnect")
_IN_FRAMES = ("RST_STREAM", "GOAWAY")  # said in a frame, which cannot follow the half of another
_WAYS2 = (*_WAYS1, *_IN_FRAMES)


def random_behaviour(dice: random.Random) -> ClientBehaviour:
    """A visit."""
    line = dice.choice((Http1Connection, Http2Connection))
    way = dice.choices(
        _WAYS2 if line is Http2Connection else _WAYS1,
        (4, 4, 4, 1, 1, 4, 2)[: 7 if line is Http2Connection else 5],
    )[0]
    dialect = dice.choice(tuple(Dialect))
    load = random_load(dice)
    if way == "no disconnect":
        return ClientBehaviour(line, dialect, load, way)
    when = dice.random()
    if when < 0.15 and way not in _IN_FRAMES:
        return ClientBehaviour(line, dialect, load, way, part=dice.random(), seconds=0.0)
    if when < 0.3:
        return ClientBehaviour(line, dialect, load, way, length=dice.randint(1, 4000))
    return ClientBehaviour(line, dialect, load, way, seconds=dice.uniform(0, LATEST))


def random_load(dice: random.Random) -> str:
    """A turn of the synthetic agent that ends by itself before long."""
    rate = dice.choice((0, 5, 50, 200))
    words = {
        "tokens": dice.randint(0, int(min(100, rate * SECONDS) if rate else 100)),
        "rate": rate,
        "tools": dice.choice((0, 0, 1, 3)),
        "think": dice.choice((0, 0, 2)),
        "mode": dice.choice(("sync", "async")),
    }
    return " ".join(f"{name}={value}" for name, value in words.items())


async def run_clients(
    target: Target, seed: str, numbers: range, notes: ClientResults, at_once: int = AT_ONCE
) -> None:
    """Make so many visits, some of them at once.

    What each does depends on the seed and its number alone.
    """
    left = iter(numbers)

    async def visitor() -> None:
        for number in left:
            await run_client(
                target,
                random_behaviour(random.Random(f"{seed}-{number}")),
                notes,
                f"{seed}-{number}",
            )

    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(visitor)


async def run_client(
    target: Target, visit: ClientBehaviour, notes: ClientResults, name: str
) -> None:
    """Make one visit."""
    with trio.move_on_after(CLIENT_SECONDS) as scope:
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", target.port)
            await _talk(visit.line(stream, target), visit, notes)
        except ConnectionEnded as error:
            if str(error):
                notes.faults.append(f"{name}: {error}")
        except _GONE:
            pass  # in the very moment in which we left, or for our bad manners
        finally:
            notes.ways[f"{visit.line.__name__[-1:]}: {visit.way}"] += 1
    VIOLATIONS.record(Violation.STUCK, scope.cancelled_caught)
    if scope.cancelled_caught:
        notes.faults.append(f"{name}: nothing came for {CLIENT_SECONDS} s: {visit}")


async def _talk(line: ClientConnection, visit: ClientBehaviour, notes: ClientResults) -> None:
    try:
        ask = await _PRELUDES[visit.dialect](line, visit.load)
        await line.ask(ask, visit.part)
        try:
            with trio.move_on_after(visit.seconds):
                await _listen(line, visit)
        finally:
            _note(line, visit, notes)
        await _LEAVES[visit.way](line)
    finally:
        if visit.way == "vanish":
            vanish(line.stream.socket)
            notes.vanished.append(line.stream)
        else:
            with trio.move_on_after(1, shield=True):
                await trio.aclose_forcefully(line.stream)


async def _listen(line: ClientConnection, visit: ClientBehaviour) -> None:
    received = 0
    while received < visit.length and not line.is_whole:
        received += await line.receive()


def _note(line: ClientConnection, visit: ClientBehaviour, notes: ClientResults) -> None:
    notes.statuses[line.status] += 1
    VIOLATIONS.record(Violation.SERVER_ERROR, line.status >= 500)
    if line.status == 200:
        notes.received.append(read_stream(visit.dialect, line.body))


async def _chat(_: ClientConnection, load: str) -> ClientRequest:
    messages = [{"role": "user", "content": load}]
    return ClientRequest(
        "POST",
        "/v1/chat/completions",
        {"model": "hermes-agent", "stream": True, "messages": messages},
    )


async def _responses(_: ClientConnection, load: str) -> ClientRequest:
    return ClientRequest(
        "POST", "/v1/responses", {"model": "hermes-agent", "stream": True, "input": load}
    )


async def _runs(line: ClientConnection, load: str) -> ClientRequest:
    run = await whole(line, ClientRequest("POST", "/v1/runs", {"input": load}))
    return ClientRequest("GET", f"/v1/runs/{run['run_id']}/events")


async def _session(line: ClientConnection, load: str) -> ClientRequest:
    made = await whole(line, ClientRequest("POST", "/api/sessions", {}))
    return ClientRequest(
        "POST", f"/api/sessions/{made['session']['id']}/chat/stream", {"message": load}
    )


_PRELUDES: dict[Dialect, Callable[[ClientConnection, str], Awaitable[ClientRequest]]] = {
    Dialect.CHAT: _chat,
    Dialect.RESPONSES: _responses,
    Dialect.RUNS: _runs,
    Dialect.SESSION: _session,
}


async def _nothing(_: ClientConnection) -> None:
    """The end of the visit does it."""


async def _reset(line: ClientConnection) -> None:
    reset_on_close(line.stream.socket)


async def _half_close(line: ClientConnection) -> None:
    """Stay until the server has understood."""
    await line.stream.send_eof()
    while True:
        await line.receive()


async def _reset_stream(line: Any) -> None:
    """The connection must still be good for another request."""
    await line.reset()
    await whole(line, ClientRequest("GET", "/health"))


async def _go_away(line: Any) -> None:
    await line.say_goodbye()


_LEAVES: dict[str, Callable[[Any], Awaitable[None]]] = {
    "FIN": _nothing,
    "RST": _reset,
    "half-close": _half_close,
    "vanish": _nothing,
    "no disconnect": _nothing,
    "RST_STREAM": _reset_stream,
    "GOAWAY": _go_away,
}
