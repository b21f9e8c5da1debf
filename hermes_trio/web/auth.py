"""Who is asking. Checked once, before any route."""

from __future__ import annotations

import structlog
from quart.wrappers import Request

from hermes_trio.core.errors import ApiError
from hermes_trio.core.redact import header_safe
from hermes_trio.keys import Keyring, Nobody
from hermes_trio.web.asked import header, visit
from hermes_trio.web.page import is_page

log = structlog.get_logger(__name__)

OPEN_PATHS = frozenset(
    {"/health", "/v1/health", "/health/live", "/health/ready", "/version", "/openapi.json"}
)


def identify(keyring: Keyring, request: Request) -> None:
    """Note the principal of the current request; where no key is needed, that of a good key all the same.

    Raises:
        ApiError: 401.
    """
    current = visit()
    principal = keyring.principal(_token(current.headers.get("authorization", "")))
    if not isinstance(principal, Nobody):
        current.principal = principal
    elif not (request.path in OPEN_PATHS or is_page(request.path)):
        _refuse(request)


def _token(header: str) -> str:
    scheme, _, token = header.partition(" ")
    if scheme != "Bearer":
        return ""
    # Headers arrive as Latin-1; a key with other characters was sent as UTF-8.
    token = token.strip()
    return token if token.isascii() else token.encode("latin-1").decode("utf-8", "replace")


def _refuse(request: Request) -> None:
    log.warning(
        "refused a key",
        method=request.method,
        path=header_safe(request.path),
        client=header_safe(request.headers.get("Remote-Addr", "")),
        user_agent=header_safe(header("User-Agent")),
    )
    raise ApiError(
        401,
        "Invalid or missing API key. The Authorization header must carry it as a bearer token.",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )
