"""Authentication: runs before every view, as one of Quart's ``before_request`` functions."""

from __future__ import annotations

import structlog
from quart import request

from hermes_trio.core.errors import ApiError
from hermes_trio.core.redact import header_safe
from hermes_trio.keys import Nobody
from hermes_trio.web.profiles import check_profile
from hermes_trio.web.request import app_state, current_request, header
from hermes_trio.web.static import is_static

log = structlog.get_logger(__name__)

OPEN_PATHS = frozenset(
    {"/health", "/v1/health", "/health/live", "/health/ready", "/version", "/openapi.json"}
)


async def authenticate() -> None:
    """Set the principal of the current request, and check that it may use the profile of the path.

    Open routes need no key, but a valid one is recognised there too.

    Raises:
        ApiError: 401 without a valid key; 404 for a profile that does not exist or is not for this principal.
    """
    context = current_request()
    context.route = request.url_rule.rule if request.url_rule is not None else ""
    principal = app_state().keyring.principal(_bearer_token(header("Authorization")))
    if not isinstance(principal, Nobody):
        context.principal = principal
    elif not (request.path in OPEN_PATHS or is_static(request.path)):
        raise _unauthorized()
    # After the key: a client without one does not learn which profiles there are.
    if not is_static(request.path):
        check_profile()


def _bearer_token(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    if scheme != "Bearer":
        return ""
    # Headers arrive as Latin-1; a key with other characters was sent as UTF-8.
    token = token.strip()
    return token if token.isascii() else token.encode("latin-1").decode("utf-8", "replace")


def _unauthorized() -> ApiError:
    log.warning(
        "refused a key",
        method=request.method,
        path=header_safe(request.path),
        client=header_safe(header("Remote-Addr")),
        user_agent=header_safe(header("User-Agent")),
    )
    return ApiError(
        401,
        "Invalid or missing API key. The Authorization header must carry it as a bearer token.",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )
