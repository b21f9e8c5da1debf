"""What routes ask of the current request."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any

from quart import request
from quart.globals import _cv_request

from hermes_trio.core.errors import bad_request
from hermes_trio.web.visit import CURRENT, Visit

LAST_EVENT_HEADER = "Last-Event-ID"
ENOUGH = 2**53
_WHOLE = re.compile(r"-?[0-9]{1,18}")


visit: Callable[[], Visit] = CURRENT.get
"""The visit that the current request is."""


def principal() -> str:
    """Whose records are meant: those of who is asking, and below ``/p/NAME`` of that profile alone."""
    return visit().scope


def asker() -> str:
    """Who is asking, whatever the path."""
    return visit().principal.name


def header(name: str) -> str:
    """A header of the request, "" if it has none of that name."""
    return visit().headers.get(name.lower(), "")


def body() -> Coroutine[Any, Any, bytes]:
    """The whole body."""
    current: Any = _cv_request.get().request  # not by way of the proxy: every turn has one
    reading: Coroutine[Any, Any, bytes] = current.get_data(as_text=False)
    return reading


def whole_number(name: str, default: int, low: int, high: int) -> int:
    """A number of the query.

    Raises:
        ApiError: 400, naming it.
    """
    text = request.args.get(name, "")
    return whole(text, name, low, high) if text else default


def whole(text: str, name: str, low: int, high: int) -> int:
    """A number that a header or the query holds under some name.

    Raises:
        ApiError: 400, naming it.
    """
    number = int(text) if _WHOLE.fullmatch(text) else low - 1
    if not low <= number <= high:
        raise bad_request(f"'{name}' must be a whole number from {low} to {high}.", name)
    return number


def is_on(name: str) -> bool:
    """A switch of the query."""
    return request.args.get(name, "").lower() in {"1", "true", "yes", "on"}


def last_event_id() -> str:
    """What a browser that comes back says that it has, "" if it does not."""
    return header(LAST_EVENT_HEADER).strip()


def last_seq(header: str, none: int) -> int:
    """The number of the last event that the client has. The header counts: a browser repeats the query as it was.

    Raises:
        ApiError: 400, naming the header or the parameter.
    """
    if header:
        return whole(header, LAST_EVENT_HEADER, none, ENOUGH)
    return whole_number("last_seq", none, none, ENOUGH)
