"""Responses made of a run: streamed as it happens, or collected and sent whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from attrs import evolve
from quart import Response

from hermes_trio.core.changes import Change
from hermes_trio.core.dialects.chat_batch import Reply
from hermes_trio.core.errors import ApiError
from hermes_trio.core.outcome import Outcome
from hermes_trio.schema.fields import SESSION_ID_HEADER
from hermes_trio.web.collecting import collect
from hermes_trio.web.errors import json_response
from hermes_trio.web.headers import STREAM_HEADERS
from hermes_trio.web.request import app_state
from hermes_trio.web.start_run import StartedRun
from hermes_trio.web.stream_body import Dialect, StreamBody


class Collector(Protocol):
    """Gathers the changes of a run for a reply in one piece."""

    def take(self, changes: Iterable[Change]) -> None:
        """Add changes."""
        ...

    @property
    def outcome(self) -> Outcome:
        """How the run ended."""
        ...


def sse_response(started: StartedRun, dialect: Dialect) -> Response:
    """Stream a run as server-sent events."""
    body = StreamBody(started.open, dialect, app_state().pulse)
    response = Response(body, 200, {**STREAM_HEADERS, **started.headers})
    response.timeout = None  # Quart would cut the stream, silently; a run has limits of its own
    return response


async def collected_response(
    started: StartedRun, collector: Collector, make_reply: Callable[[], Awaitable[Reply]]
) -> Response:
    """Read a run to its end, then respond with the reply that ``make_reply`` makes of the collector.

    Raises:
        ApiError: what ``make_reply`` raises, with the headers of the run.
    """
    async with started.open() as changes:
        await collect(changes, collector.take)
    headers = started.headers
    if collector.outcome.session_id:  # the agent moved to another session
        headers = {**headers, SESSION_ID_HEADER: collector.outcome.session_id}
    try:
        reply = await make_reply()
    except ApiError as error:
        raise evolve(error, headers={**headers, **error.headers}) from None
    return json_response(reply.body, 200, {**headers, **reply.headers})
