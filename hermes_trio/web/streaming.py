"""Answering with a stream."""

from __future__ import annotations

from quart import Response

from hermes_trio.web.headers import STREAM_HEADERS, good_headers
from hermes_trio.web.options import Site
from hermes_trio.web.stream_body import Dialect, Start, StreamBody


def streamed(site: Site, start: Start, dialect: Dialect, headers: dict[str, str]) -> Response:
    """A run, rendered as it happens."""
    body = StreamBody(start, dialect, site.pulse)
    response = Response(body, 200, good_headers({**STREAM_HEADERS, **headers}))
    response.timeout = None  # Quart's limit counts the whole stream; ours are the run's
    return response
