"""The SSE writer: the body of a streaming response; and its counterpart for a reply in one piece.

Quart enters a response body with ``async with`` and sends what it yields, all in the task that handles the request. So
the run's nursery lives in the body, an async context manager, and never across a generator's ``yield``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, Self

import trio
from quart import Response, request
from quart.wrappers.response import ResponseBody

from hermes_trio.core.changes import Ended
from hermes_trio.core.wire import KEEPALIVE
from hermes_trio.runs.delivery import EXTENSION, Delivery, TrySend
from hermes_trio.runs.log import ChangeReader, Changes
from hermes_trio.runs.spec import RunStats
from hermes_trio.web.headers import STREAM_HEADERS
from hermes_trio.web.options import Site

Start = Callable[[], AbstractAsyncContextManager[ChangeReader]]


class Dialect(Protocol):
    """Renders a run for one kind of client."""

    def opening(self) -> bytes:
        """Return the frames that go out at once."""
        ...

    def render(self, changes: Changes) -> bytes:
        """Return the frames of some changes; may be empty."""
        ...


class StreamTruncated(Exception):
    """The run gave up on its reader before it announced the end.

    Clients take a body that ends properly for a complete answer, so this one must end as a broken transfer.
    """


class StreamBody(ResponseBody):
    """Renders a run as server-sent events, and owns it for as long as the client reads.

    Each item is everything that is pending, in one piece. After ``keepalive_seconds`` without a byte it is a comment.
    """

    def __init__(
        self,
        start: Start,
        dialect: Dialect,
        stats: RunStats,
        keepalive_seconds: float,
        try_send: TrySend | None = None,
    ) -> None:
        self._run = start()
        self._stats = stats
        self._dialect = dialect
        self._keepalive_seconds = keepalive_seconds
        self._opening = dialect.opening()
        self._has_end = False
        self._reader: ChangeReader
        self._silence = (
            trio.CancelScope()
        )  # around the wait for changes; ends when a keep-alive comment is due
        self._delivery = Delivery(self._render, try_send, self._sent) if try_send else None

    async def __aenter__(self) -> Self:
        """Start the run."""
        self._reader = await self._run.__aenter__()
        self._stats.open_streams += 1
        if self._delivery is not None:
            self._reader.set_write_through(self._delivery)
        self._sent()
        return self

    async def __aexit__(  # type: ignore[override]  # Quart declares the arguments of a normal exit away
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """End the run, if it did not end by itself."""
        self._stats.open_streams -= 1
        return await self._run.__aexit__(kind, error, traceback)  # noqa: ASYNC102 - the run bounds its own end

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        frames, self._opening = self._opening, b""
        while not frames:
            frames = await self._wait_for_frames()
        self._sent()
        return frames

    async def _wait_for_frames(self) -> bytes:
        """Return the next frames; a comment if there was nothing to send for too long; nothing for hidden changes."""
        if self._has_end:
            raise StopAsyncIteration
        self._silence = trio.CancelScope(deadline=self._keepalive_due)
        with self._silence:
            try:
                changes = await self._reader.receive()
            except trio.EndOfChannel:
                raise StreamTruncated from None
            return self._render_all(changes) if changes else self._take_unsent()
        # What could not be written through in the same moment comes before anything else.
        return self._take_unsent() or KEEPALIVE

    def _take_unsent(self) -> bytes:
        return self._delivery.take_unsent() if self._delivery is not None else b""

    def _render_all(self, changes: Changes) -> bytes:
        """Render some changes, and whatever else has come meanwhile."""
        frames = [self._render(changes)]
        while not self._has_end:
            try:
                frames.append(self._render(self._reader.receive_nowait()))
            except trio.WouldBlock:
                break
        return b"".join(frames)

    def _render(self, changes: Changes) -> bytes:
        self._has_end = isinstance(changes[-1], Ended)
        return self._dialect.render(changes)

    def _sent(self) -> None:
        """Bytes go out now: the next comment is due after another silence."""
        self._keepalive_due = trio.current_time() + self._keepalive_seconds
        self._silence.deadline = self._keepalive_due


def sse_response(site: Site, start: Start, dialect: Dialect, headers: dict[str, str]) -> Response:
    """Return a response that streams a run as it happens."""
    extensions: Mapping[str, Any] = request.scope.get("extensions", {}) if site.options.write_through else {}
    try_send = extensions[EXTENSION].try_send if EXTENSION in extensions else None
    body = StreamBody(start, dialect, site.services.stats, site.options.keepalive_seconds, try_send)
    response = Response(body, headers={**STREAM_HEADERS, **headers})
    response.timeout = None  # Quart's limit counts the whole stream; the deadlines are the run's own
    return response


async def collect(reader: ChangeReader, take: Callable[[Changes], None]) -> None:
    """Pass every batch of changes to ``take`` until the log ends."""
    async for changes in reader:
        take(changes)
