"""An answer whose parts are known to be good.

Quart and Werkzeug look at everything that a view may hand them: what kind of body it is, which status, each header, and whether
one of them is missing. Ours are complete when they are made, and the connection looks at all headers before they go out.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

from quart import Response
from quart.wrappers.response import ResponseBody
from werkzeug.datastructures import Headers
from werkzeug.http import HTTP_STATUS_CODES

from hermes_trio.web.headers import RawHeaders

_LINES = {code: f"{code} {phrase.upper()}" for code, phrase in HTTP_STATUS_CODES.items()}


class Ready(Response):
    """A body, a status and all headers, the type and, where it is known, the length of the body among them."""

    def __init__(self, body: ResponseBody, status: int, fields: dict[str, str]) -> None:
        self.response, self.fields = body, fields
        self.timeout = None  # Quart's limit counts the whole stream; ours are the run's
        self._status, self._status_code = _LINES.get(status, f"{status} UNKNOWN"), status

    @cached_property
    def headers(self) -> Headers:  # type: ignore[override]  # Werkzeug sets it, and nobody else
        """As Quart has them."""
        return Headers(self.fields)

    def raw_headers(self) -> RawHeaders:
        """As ASGI has them."""
        return [(_raw_name(name), value.encode()) for name, value in self.fields.items()]


@lru_cache(maxsize=128)
def _raw_name(name: str) -> bytes:
    return name.lower().encode()
