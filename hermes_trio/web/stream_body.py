"""The SSE writer: the body of a streaming response.

Quart enters the body with ``async with`` and sends what it yields, all in the task that handles the request. So the
run's nursery lives here, in an async context manager, and never across a generator's ``yield``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Protocol, Self

import trio
from quart.wrappers.response import ResponseBody

from hermes_trio.core.changes import Ended
from hermes_trio.core.wire import KEEPALIVE
from hermes_trio.pulse import Pulse
from hermes_trio.runs.log import Changes, Pen


class Source(Protocol):
    """Where changes come from: a live log or a stored one."""

    async def receive(self) -> Changes:
        """The next changes; raises ``trio.EndOfChannel`` after the last."""
        ...

    async def hear(self) -> Changes:
        """The same; nothing, if somebody wakes it."""
        ...

    def wake(self) -> None:
        """Let whoever waits look up."""
        ...

    @property
    def is_left(self) -> bool:
        """Whether the end, once it is read, leaves nothing to wait for."""
        ...

    def receive_nowait(self) -> Changes:
        """What is there already; raises ``trio.WouldBlock`` if nothing is."""
        ...

    def write_with(self, pen: Pen) -> None:
        """Have what is new written at once where that can be; the pen tells whether it was."""
        ...

    def __aiter__(self) -> AsyncIterator[Changes]:
        """Batch after batch."""
        ...


Start = Callable[[], AbstractAsyncContextManager[Source]]
SendNow = Callable[[bytes], bool]


class Dialect(Protocol):
    """Renders a run for one kind of client."""

    def opening(self) -> bytes:
        """What goes out at once."""
        ...

    def render(self, changes: Changes) -> bytes:
        """The frames of some changes; may be nothing."""
        ...


class BodyCut(Exception):
    """The run gave its reader up and did not tell it the end.

    Clients take a body that ends well for a whole answer, so this one must end as a broken transfer.
    """


class StreamBody(ResponseBody):
    """Owns a run for as long as its client listens."""

    def __init__(
        self,
        start: Start,
        dialect: Dialect,
        pulse: Pulse,
    ) -> None:
        self._run = start()
        self._dialect = dialect
        self._pulse = pulse
        self._is_silent = False
        self._waiting = dialect.opening()
        self._has_end = False
        self._has_rest = False  # something was sent, and not all of it has gone out
        self._reader: Source

    @property
    def has_opening(self) -> bool:
        """Whether something can be sent at once."""
        return bool(self._waiting)

    @property
    def is_over(self) -> bool:
        """Whether all has been handed out, and nothing is left that the client's next request could meet."""
        return self._has_end and not self._waiting and self._reader.is_left

    async def __aenter__(self) -> Self:
        """Start the run."""
        self._reader = await self._run.__aenter__()
        self._pulse.add(self)
        return self

    async def __aexit__(  # type: ignore[override]  # Quart declares the arguments of a normal exit away
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """End the run, if it did not end by itself."""
        self._pulse.remove(self)
        return await self._run.__aexit__(kind, error, traceback)  # noqa: ASYNC102 - the run bounds its own end

    def write_with(self, send_now: SendNow) -> None:
        """While this stream waits, send what is new in the task of whoever says it: then none has to wait for its turn."""
        self._reader.write_with(partial(self._write, send_now))

    def _write(self, send_now: SendNow) -> bool:
        """Send all that is new but the end, which goes out with the end of the body; False if this stream has to see to it."""
        frames = self._render(self._reader.receive_nowait())
        if self._has_end:
            self._waiting = frames
            return False
        if frames:
            self._has_rest = not send_now(frames)
            self._pulse.beat(self)
        return not self._has_rest

    def __aiter__(self) -> Self:
        """The body is its own iterator."""
        return self

    async def __anext__(self) -> bytes:
        """All frames that wait, in one piece; a comment when nothing came for a while."""
        self._is_silent = False
        self._pulse.beat(self)
        while not (self._waiting or self._has_rest):  # what this dialect does not show leaves the wire silent
            self._waiting = await self._receive()
        frames, self._waiting, self._has_rest = self._waiting, b"", False
        return frames

    def silent(self) -> None:
        """Nothing was sent for a while."""
        self._is_silent = True
        self._reader.wake()

    async def _receive(self) -> bytes:
        try:
            changes = await self._reader.hear()
        except trio.EndOfChannel:
            raise (StopAsyncIteration if self._has_end else BodyCut) from None
        if not changes:
            return self._waiting or (KEEPALIVE if self._is_silent else b"")
        frames = [self._render(changes)]
        while True:
            try:
                frames.append(self._render(self._reader.receive_nowait()))
            except (trio.WouldBlock, trio.EndOfChannel):
                return b"".join(frames)

    def _render(self, changes: Changes) -> bytes:
        self._has_end = isinstance(changes[-1], Ended)
        return self._dialect.render(changes)
