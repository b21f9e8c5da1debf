"""Answering with a stream."""

from __future__ import annotations

from quart import Response

from hermes_trio.web.headers import STREAM_HEADERS
from hermes_trio.web.options import Site
from hermes_trio.web.ready import Ready
from hermes_trio.web.stream_body import Dialect, Start, StreamBody


def streamed(site: Site, start: Start, dialect: Dialect, headers: dict[str, str]) -> Response:
    """A run, rendered as it happens."""
    return Ready(StreamBody(start, dialect, site.pulse), 200, {**STREAM_HEADERS, **headers})
