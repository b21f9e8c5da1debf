"""The only module of the corpus that knows the server by name.

A refactoring of the server must leave the corpus as it is and may change this file. What the rest needs:

* ``open_server``: an ASGI application around an agent factory, with both clocks given;
* ``fixed_ids``: the one source of randomness, made repeatable;
* ``Server.find_record``: what the store has of a run, as JSON values in names of this corpus;
* ``result`` and ``turn_view``: the values that agents return and get.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from unittest import mock

from attrs import define, evolve, frozen

from hermes_trio.core.events import Result, Verdict
from hermes_trio.core.messages import (
    CallItem,
    ClientCallItem,
    Message,
    MessageItem,
    ReasoningItem,
    Usage,
)
from hermes_trio.core.records import EndedRun, LiveRun, NoRun, RunHeader
from hermes_trio.runs.tracker import DEFAULT_LIMITS
from tests.support import fakes

Json = dict[str, Any]
Asgi = Callable[[Any, Any, Any], Awaitable[None]]

PRINCIPAL = "ann"
KEY = fakes.KEY
NEVER = 1e9  # seconds; longer than any scenario


@define
class Clock:
    """Time that passes only when the script says so. Binary fractions, so that sums are exact."""

    elapsed: float = 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.elapsed += seconds

    def monotonic(self) -> float:
        """What the server takes for ``time.monotonic``."""
        return 1_000.0 + self.elapsed

    def wall(self) -> float:
        """What the server takes for ``time.time``."""
        return 1_700_000_000.5 + self.elapsed


@frozen
class Server:
    """A server in memory."""

    app: Asgi
    _store: Any

    async def find_record(self, run_id: str) -> Json:
        """What the store returns for a run."""
        return _record_view(await self._store.find_run(PRINCIPAL, run_id))


@define(eq=False)
class _AgentFactory(fakes.ScriptedAgentFactory):
    """Hands a factory of ours to the harness."""

    make_agent: Callable[[Any], Any] = lambda turn: None

    def factory(self, context: Any) -> Any:
        return self.make_agent(context.turn)


@asynccontextmanager
async def open_server(
    make_agent: Callable[[Any], Any],
    clock: Clock,
    *,
    keepalive_seconds: float = NEVER,
    run_seconds: float = 0.0,
) -> AsyncIterator[Server]:
    """Serve agents. ``make_agent`` gets the turn and returns an object with ``async def run(turn, say)``."""
    async with fakes.open_harness(
        _AgentFactory((), make_agent=make_agent),
        options=evolve(fakes.PLAIN, keepalive_seconds=keepalive_seconds),
        limits=evolve(DEFAULT_LIMITS, run=run_seconds, stall=NEVER, save=NEVER),
        max_runs=8,
        clock=clock.monotonic,
        wall_clock=clock.wall,
    ) as harness:
        yield Server(harness.client.app, harness.store)


# -- ids --


class IdSource:
    """Stands in for the kernel's randomness."""

    def __init__(self) -> None:
        self._seed = ""
        self._block = 0
        self._unused = b""

    def restart(self, seed: str) -> None:
        """Begin the sequence that belongs to a seed."""
        self._seed, self._block, self._unused = seed, 0, b""

    def token_bytes(self, size: int | None = None) -> bytes:
        """The next bytes of the sequence."""
        assert size is not None
        while len(self._unused) < size:
            self._unused += hashlib.sha256(f"{self._seed}/{self._block}".encode()).digest()
            self._block += 1
        found, self._unused = self._unused[:size], self._unused[size:]
        return found


@contextmanager
def fixed_ids() -> Iterator[IdSource]:
    """Make ids a function of the request that they are made for.

    Patched is ``secrets.token_bytes``, which ``token_hex`` calls, because modules that import a function by name would
    not see another one.
    """
    source = IdSource()
    with mock.patch.object(secrets, "token_bytes", source.token_bytes):
        yield source


# -- values --


def result(text: str = "", verdict: str = "completed", **more: Any) -> Result:
    """What an agent returns; ``usage`` is a mapping of token counts."""
    usage = Usage(**more.pop("usage", {}))
    return Result(text, Verdict(verdict), usage=usage, **more)


def turn_view(turn: Any) -> Json:
    """What an agent is asked."""
    more = {
        "history": [_message_view(message) for message in turn.history],
        "instructions": turn.instructions,
        "model": turn.model,
        "session_key": turn.session_key,
        "principal": turn.principal,
        "profile": turn.profile,
        "options": dict(turn.options),
    }
    return {
        "run_id": turn.run_id,
        "session_id": turn.session_id,
        "message": turn.message,
        **_filled(more),
    }


def _record_view(found: LiveRun | EndedRun | NoRun) -> Json:
    match found:
        case LiveRun(header):
            return {"state": "live", **_header_view(header)}
        case EndedRun(header):
            end = {"outcome": _outcome_view(found.outcome), "ended_after": found.ended_after}
            return {
                "state": "ended",
                **_header_view(header),
                "items": list(map(_item_view, found.items)),
                **end,
            }
        case NoRun():
            return {"state": "none"}


def _header_view(header: RunHeader) -> Json:
    known = {
        "run_id": header.stamp.run_id,
        "created_at": header.stamp.created_at,
        "model": header.stamp.model,
        "principal": header.principal,
        "kind": header.kind,
        "session_id": header.session_id,
        "messages": [_message_view(message) for message in header.messages],
    }
    more = {
        "parent": header.parent,
        "conversation": header.conversation,
        "instructions": header.instructions,
        "background": header.background,
        "request": dict(header.request),
        "input_items": [dict(item) for item in header.input_items],
    }
    return {**known, **_filled(more)}


def _message_view(message: Message) -> Json:
    calls = [
        {"id": call.call_id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    more = {
        "tool_calls": calls,
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "reasoning": message.reasoning,
    }
    return {"role": message.role, "content": message.content, **_filled(more)}


def _filled(fields: Json) -> Json:
    """Omit empty values, which keeps the files short."""
    return {name: value for name, value in fields.items() if value}


_ITEM_FIELDS: Mapping[type, tuple[str, tuple[str, ...]]] = {
    MessageItem: ("message", ("text",)),
    ReasoningItem: ("reasoning", ("text",)),
    ClientCallItem: ("client_call", ("call_id", "name", "arguments")),
    CallItem: (
        "call",
        ("call_id", "name", "args", "state", "result", "is_error", "duration", "after", "rank"),
    ),
}


def _item_view(item: object) -> Json:
    kind, fields = _ITEM_FIELDS[type(item)]
    return {"type": kind, **{name: getattr(item, name) for name in fields}}


def _outcome_view(outcome: Any) -> Json:
    tokens = (
        "input_tokens",
        "output_tokens",
        "cached_tokens",
        "cache_write_tokens",
        "reasoning_tokens",
    )
    return {
        "status": outcome.status,
        "reason": outcome.reason,
        "failure": {"message": outcome.failure.message, "kind": outcome.failure.kind},
        "usage": _filled({name: getattr(outcome.usage, name) for name in tokens}),
        "raised": outcome.raised,
        "session_id": outcome.session_id,
    }
