"""Answering with a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from quart import Response

from hermes_trio.web.headers import STREAM_HEADERS
from hermes_trio.web.options import Site
from hermes_trio.web.stream_body import Dialect, Source, Start, StreamBody


def streamed(site: Site, start: Start, dialect: Dialect, headers: dict[str, str]) -> Response:
    """A run, rendered as it happens."""
    body = StreamBody(partial(_counted, site, start), dialect, site.pulse)
    response = Response(body, 200, {**STREAM_HEADERS, **headers})
    response.timeout = None  # Quart's limit counts the whole stream; ours are the run's
    return response


@asynccontextmanager
async def _counted(site: Site, start: Start) -> AsyncIterator[Source]:
    """The stream is open for as long as the block lasts."""
    tally = site.services.tally
    tally.streams += 1
    try:
        async with start() as source:
            yield source
    finally:
        tally.streams -= 1
