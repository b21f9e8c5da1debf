"""``GET /api/logs``: the latest log lines of this process and those that follow, for administrators."""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

import trio
from attrs import asdict
from quart import Blueprint, Response
from quart.wrappers.response import ResponseBody

from hermes_trio.core.dialects.wire import KEEPALIVE
from hermes_trio.log_tail import MAX_LINES, LogLine
from hermes_trio.web.auth import require_admin
from hermes_trio.web.request import app_state, int_param, last_event_id, parse_int
from hermes_trio.web.sse import STREAM_HEADERS
from hermes_trio.web.state import LogFeed

DEFAULT_LINES = 200

blueprint = Blueprint("log_stream", __name__)


@blueprint.get("/api/logs")
async def stream_logs() -> Response:
    """Stream log lines until the client leaves or the server stops."""
    require_admin()
    limit = int_param("lines", DEFAULT_LINES, 0, MAX_LINES)
    feed, given = app_state().log_feed, last_event_id()
    after = parse_int(given, "Last-Event-ID", 0, 2**53) if given else 0
    if after > feed.tail.count:  # the number of another process
        after = 0
    lines = feed.tail.read(after, MAX_LINES if given else limit)
    last = lines[-1].number if lines else after or feed.tail.count
    body = LogBody(feed, lines, last, app_state().options.keepalive_seconds)
    response = Response(body, 200, STREAM_HEADERS)
    response.timeout = None  # Quart would cut the stream
    return response


class LogBody(ResponseBody):
    """Renders log lines as server-sent events. A client that reads too slowly misses lines."""

    def __init__(
        self, feed: LogFeed, lines: list[LogLine], last: int, keepalive_seconds: float
    ) -> None:
        self._feed, self._keepalive_seconds = feed, keepalive_seconds
        self._opening = KEEPALIVE + render(lines)
        self._last = last
        self._changed = trio.Event()
        self._subscriptions = ExitStack()

    async def __aenter__(self) -> Self:
        """Listen for new lines, and for the end of the server."""
        token = trio.lowlevel.current_trio_token()

        def notify() -> None:
            # Unlike ``ThreadNotifier``, it may be called again while it runs, as by a finalizer
            # that logs.
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(self._wake, idempotent=True)

        self._subscriptions.enter_context(self._feed.tail.listening(notify))
        self._subscriptions.enter_context(self._feed.open_stream(self._wake))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop listening."""
        self._subscriptions.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        frames, self._opening = self._opening, b""
        with trio.move_on_after(self._keepalive_seconds):
            while not frames:
                frames = await self._wait_for_lines()
        return frames or KEEPALIVE

    async def _wait_for_lines(self) -> bytes:
        # Made before the lines are read, so that it is set for those that come afterwards.
        self._changed = trio.Event()
        if lines := self._feed.tail.read(self._last):
            self._last = lines[-1].number
            return render(lines)
        if self._feed.is_closed:
            raise StopAsyncIteration
        await self._changed.wait()
        return b""

    def _wake(self) -> None:
        self._changed.set()


def render(lines: list[LogLine]) -> bytes:
    """Return one server-sent event for each line."""
    return "".join(
        f"id: {line.number}\nevent: log\ndata: {json.dumps(asdict(line))}\n\n" for line in lines
    ).encode()
