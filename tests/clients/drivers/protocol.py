"""What a driver can do, and the loop that serves it over lines of JSON.

A request is ``{"action": …, "texts": […]}``. The reply is ``{"texts": […], "calls": […]}``, or
``{"error": …}`` if the client raised.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, Protocol, TypeVar, runtime_checkable

MODEL = "hermes-agent"
LEAVING_SECONDS = 1.0
CALLS: list[list[int]] = []  # of the client's own tool

_T = TypeVar("_T")
_LOOP = asyncio.Runner()  # one for all actions: clients keep connections, which belong to a loop


def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers."""
    CALLS.append([a, b])
    return a * b


# The same tool for clients that take a schema.
MULTIPLY_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


class ReportedFailure(Exception):
    """The client returned a failure instead of raising it."""


class Driver(Protocol):
    """One client. Methods may be synchronous or not."""

    def answer(self, text: str) -> str | Awaitable[str]:
        """Return the answer to one message, not streamed."""

    def stream(self, text: str) -> Iterator[str] | AsyncIterator[str]:
        """Yield the answer to one message in the pieces that arrive. Closing it disconnects."""

    def converse(self, first: str, second: str) -> list[str] | Awaitable[list[str]]:
        """Return the answers of two turns of one conversation."""

    def use_tool(self, text: str) -> str | Awaitable[str]:
        """Offer `multiply`, run it if it is called, and return the last answer."""


@runtime_checkable
class ApprovalDriver(Protocol):
    """A client that knows hosted MCP servers."""

    def decide(
        self, first: str, second: str, *, approves: bool
    ) -> list[str] | Awaitable[list[str]]:
        """Decide on the call that a turn asks about.

        Return that call, the answer, and the answer of a second turn.
        """


def serve(driver: Driver) -> None:
    """Answer requests until the input ends."""
    # Some clients print: what they print must not end up between the replies.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        CALLS.clear()
        try:
            reply = _perform(driver, **json.loads(line))
        except Exception as error:  # noqa: BLE001  # what a client raises is the result
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)


def _perform(driver: Driver, action: str, texts: list[str]) -> dict[str, Any]:
    heard: list[str] = []
    if action == "answer":
        heard = [_run(driver.answer(texts[0]))]
    elif action == "converse":
        heard = _run(driver.converse(*texts))
    elif action == "use_tool":
        heard = [_run(driver.use_tool(texts[0]))]
    elif action in {"approve", "refuse"}:
        assert isinstance(driver, ApprovalDriver)
        heard = _run(driver.decide(*texts, approves=action == "approve"))
    else:
        heard = _collect(driver.stream(texts[0]), leaves=action == "leave")
    return {"texts": heard, "calls": CALLS}


def _run(value: _T | Awaitable[_T]) -> _T:
    if not isinstance(value, Awaitable):
        return value

    async def wait() -> _T:
        return await value

    return _LOOP.run(wait())


def _collect(pieces: Iterator[str] | AsyncIterator[str], leaves: bool) -> list[str]:
    """Return all pieces with text, or only the first one and leave."""
    if isinstance(pieces, AsyncIterator):
        return _LOOP.run(_collect_async(pieces, leaves))
    heard = []
    for piece in pieces:
        if piece:
            heard.append(piece)
            if leaves:
                break
    getattr(pieces, "close", lambda: None)()
    return heard


async def _collect_async(pieces: AsyncIterator[str], leaves: bool) -> list[str]:
    heard: list[str] = []
    has_begun = asyncio.Event()

    async def read() -> None:
        async for piece in pieces:
            if piece:
                heard.append(piece)
                has_begun.set()

    if not leaves:
        await read()
        return heard
    # As web frameworks do it when their own client leaves: the task that reads is cancelled.
    reading, beginning = asyncio.create_task(read()), asyncio.create_task(has_begun.wait())
    await asyncio.wait({reading, beginning}, return_when=asyncio.FIRST_COMPLETED)
    for task in (reading, beginning):
        task.cancel()
    await asyncio.gather(reading, beginning, return_exceptions=True)
    # The loop of a program goes on, and with it what the client does in the background.
    await asyncio.sleep(LEAVING_SECONDS)
    return heard
