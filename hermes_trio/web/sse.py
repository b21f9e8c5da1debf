"""Responses from a run: streamed by the SSE writer as it happens, or collected and sent whole.

Quart enters a response body with ``async with`` and sends what it yields, all in the task that
handles the request. So the run's nursery lives in the body, an async context manager, and never
across a generator's ``yield``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Protocol, Self

import trio
from attrs import evolve
from quart import Response
from quart.wrappers.response import ResponseBody

from hermes_trio.core.changes import Change, Ended
from hermes_trio.core.dialects.chat import BatchReply
from hermes_trio.core.dialects.wire import KEEPALIVE
from hermes_trio.core.errors import ApiError
from hermes_trio.core.outcome import Outcome
from hermes_trio.runs.delivery import Delivery, TrySend
from hermes_trio.runs.log import ChangeReader, Changes, is_long
from hermes_trio.runs.spec import RunStats
from hermes_trio.schema.parsing import SESSION_ID_HEADER
from hermes_trio.web.errors import json_response
from hermes_trio.web.request import MAX_INLINE_BYTES, app_state, current_request, in_thread
from hermes_trio.web.start_run import Start, StartedRun

STREAM_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}


MAX_PIECE_BYTES = 1_048_576
"""How much is handed to the connection at once, which takes time in proportion to its length."""


class Dialect(Protocol):
    """Renders a run for one kind of client."""

    def opening(self) -> bytes:
        """Return the frames that go out at once."""
        ...

    def render(self, changes: Changes) -> bytes:
        """Return the frames of some changes; may be empty."""
        ...


class StreamTruncated(Exception):
    """The run gave up on its reader, or another server may end it, before it announced the end.

    Clients take a body that ends properly for a complete answer, so this one must end as a broken
    transfer.
    """


class StreamBody(ResponseBody):
    """Renders a run as server-sent events, and owns it for as long as the client reads.

    Each item is everything that is pending, in one piece. After ``keepalive_seconds`` without a
    byte it is a comment.
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
        self._rest = memoryview(b"")  # of frames that are sent in several pieces
        self._has_end = False
        self._rendered_bytes = 0
        self._reader: ChangeReader
        self._last_sent = 0.0
        self._try_send = try_send
        self._delivery: Delivery | None = None

    async def __aenter__(self) -> Self:
        """Start the run."""
        self._reader = await self._run.__aenter__()
        self._stats.open_streams += 1
        if self._try_send is not None:
            self._delivery = Delivery(self._render_now, self._try_send)
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
        try:
            return await self._run.__aexit__(kind, error, traceback)  # noqa: ASYNC102 - the run bounds its own end
        finally:
            self._delivery = None  # it refers to this body
            if error is not None:
                # Ending the run adds frames to the traceback that hold the exception: a cycle
                # with everything that the request made. contextlib restores the traceback only if
                # the same exception comes out, but a nursery raises another Cancelled.
                error.__traceback__ = traceback

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        frames, self._opening = self._opening, b""
        while not frames:
            frames = await self._wait_for_frames()
        self._sent()
        return frames

    async def _wait_for_frames(self) -> bytes:
        """Return the next frames.

        A comment if there was nothing to send for too long; nothing for hidden changes.
        """
        if self._rest:
            return self._take_piece()
        if self._has_end:
            raise StopAsyncIteration
        with trio.CancelScope(deadline=self._last_sent + self._keepalive_seconds):
            try:
                changes = await self._reader.receive()
            except trio.EndOfChannel:
                raise StreamTruncated from None
            if not changes:
                return self._take_unsent()
            self._rest = memoryview(await self._render_all(changes))
            return self._take_piece()
        # What could not be written through in the same moment comes before anything else.
        return self._take_unsent() or (KEEPALIVE if self._is_silent() else b"")

    def _take_piece(self) -> bytes:
        piece, self._rest = self._rest[:MAX_PIECE_BYTES], self._rest[MAX_PIECE_BYTES:]
        return bytes(piece)

    def _take_unsent(self) -> bytes:
        return self._delivery.take_unsent() if self._delivery is not None else b""

    async def _render_all(self, changes: Changes) -> bytes:
        """Render some changes, and whatever else has come meanwhile."""
        frames = [await self._render_anywhere(changes)]
        while not self._has_end:
            try:
                frames.append(await self._render_anywhere(self._reader.receive_nowait()))
            except trio.WouldBlock:
                break
        return b"".join(frames)

    async def _render_anywhere(self, changes: Changes) -> bytes:
        """Render long texts in a thread, so that no other stream has to wait for them.

        The last frames of some dialects repeat the whole answer.
        """
        if not changes:  # a wake-up for the SSE writer that came too late to be needed
            return b""
        self._has_end = isinstance(changes[-1], Ended)
        repeats = self._has_end and self._rendered_bytes > MAX_INLINE_BYTES
        if repeats or is_long(changes):
            frames = await in_thread(self._dialect.render, changes)
        else:
            frames = self._dialect.render(changes)
        self._rendered_bytes += len(frames)
        return frames

    def _render_now(self, changes: Changes) -> bytes:
        """Render short changes that are written through; the end is never among them."""
        frames = self._dialect.render(changes)
        self._rendered_bytes += len(frames)
        if frames:
            self._sent()
        return frames

    def _sent(self) -> None:
        self._last_sent = trio.current_time()

    def _is_silent(self) -> bool:
        """Return whether a comment is due.

        Not if something was written through while the SSE writer waited.
        """
        return trio.current_time() >= self._last_sent + self._keepalive_seconds


def sse_response(started: StartedRun, dialect: Dialect) -> Response:
    """Stream a run as server-sent events, written through to the connection where the server offers that."""
    state = app_state()
    body = StreamBody(
        started.open,
        dialect,
        state.services.stats,
        state.options.keepalive_seconds,
        current_request().try_send,
    )
    response = Response(body, 200, {**STREAM_HEADERS, **started.headers})
    response.timeout = None  # Quart would cut the stream, silently; a run has limits of its own
    return response


class Collector(Protocol):
    """Gathers the changes of a run for a reply in one piece."""

    def take(self, changes: Iterable[Change]) -> None:
        """Add changes."""
        ...

    @property
    def outcome(self) -> Outcome:
        """How the run ended."""
        ...


async def collected_response(
    started: StartedRun, collector: Collector, make_reply: Callable[[], Awaitable[BatchReply]]
) -> Response:
    """Read a run to its end, then respond with the reply that ``make_reply`` makes of the collector.

    Raises:
        ApiError: what ``make_reply`` raises, with the headers of the run; 503 if the end of the run
            cannot be told, because another server has taken it over or may do so.
    """
    last: Change | None = None
    async with started.open() as changes:
        async for batch in changes:
            collector.take(batch)
            last = batch[-1] if batch else last
    if not isinstance(last, Ended):
        message = "The end of the run is not stored yet, or another server has taken it over. Read it again."
        raise ApiError(503, message, "server_error", code="run_taken_over", headers=started.headers)
    headers = started.headers
    if collector.outcome.session_id:  # the agent moved to another session
        headers = {**headers, SESSION_ID_HEADER: collector.outcome.session_id}
    try:
        reply = await make_reply()
    except ApiError as error:
        raise evolve(error, headers={**headers, **error.headers}) from None
    return json_response(reply.body, 200, {**headers, **reply.headers})
