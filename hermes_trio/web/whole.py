"""A request that has come with its body, and what is asked of it.

Quart prepares for bodies that are still on their way, for forms, and for whatever a view may want of the headers. Ours want the method, the
path, the query and the body; the headers they know from the visit.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import cached_property
from typing import Any

from quart_trio.wrappers import TrioRequest
from werkzeug.datastructures import Headers
from werkzeug.exceptions import RequestEntityTooLarge


class WholeRequest(TrioRequest):
    """Made of an ASGI scope without a root path. It has no form: that would take Quart's own."""

    def __init__(self, scope: MutableMapping[str, Any], data: bytes, most: int) -> None:
        self.scope: Any = scope
        self.method, self.scheme, self.http_version = scope["method"], scope["scheme"], scope["http_version"]
        self.server, self.root_path = scope["server"], ""
        self.path, self.query_string = "/" + scope["path"].lstrip("/"), scope["query_string"]
        self._whole, self._most = data, most

    @cached_property
    def remote_addr(self) -> str:  # type: ignore[override]  # Werkzeug sets it, and nobody else
        """Where it comes from."""
        return str((self.scope["client"] or ["<local>"])[0])

    @cached_property
    def headers(self) -> Headers:  # type: ignore[override]  # the same
        """As Quart has them."""
        named = (
            (name.decode("latin1").title(), value.decode("latin1")) for name, value in self.scope["headers"]
        )
        return Headers([("Remote-Addr", self.remote_addr), *named])

    async def get_data(self, cache: bool = True, as_text: bool = False, parse_form_data: bool = False) -> Any:  # noqa: ARG002 - as Quart has it
        """The body, which is here already.

        Raises:
            RequestEntityTooLarge: there is too much of it, and nothing said so before.
        """
        if len(self._whole) > self._most:
            raise RequestEntityTooLarge
        return self._whole.decode() if as_text else self._whole
