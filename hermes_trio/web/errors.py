"""Error handlers of the application: every error has the same JSON envelope."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import structlog
from quart import Response, request
from werkzeug.exceptions import HTTPException, InternalServerError

from hermes_trio.core.dialects.chat import NO_RETRY
from hermes_trio.core.dialects.wire import encode
from hermes_trio.core.errors import INVALID_REQUEST, SERVER_ERROR, ApiError
from hermes_trio.core.redact import redact_message
from hermes_trio.stores.base import StoreError

log = structlog.get_logger(__name__)

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
NO_STORE: Mapping[str, str] = MappingProxyType({"Cache-Control": "no-store"})  # holds a credential

_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "body_too_large",
}
_MESSAGES = {
    404: "There is nothing at this path.",
    405: "This path does not take this method.",
    408: "The request body took too long to arrive.",
    413: "The request body is too large.",
}
# Operations of the OpenAI API that SDKs offer and this server does not have. A 404, because clients
# retry a 501, and a 405 would say that another method does the same.
_NOT_SUPPORTED = {
    ("POST", "/v1/responses/compact"): (
        'This server does not compact responses. Send `truncation: "auto"` to shorten a long history.'
    ),
    ("POST", "/v1/responses/input_tokens"): (
        "This server does not count tokens in advance. The usage of a response has the number."
    ),
    ("GET", "/v1/chat/completions"): (
        "This server does not list chat completions. `GET /v1/runs?kind=chat` lists their runs."
    ),
}


def json_response(
    body: object, status: int = 200, headers: Mapping[str, str] = NO_HEADERS
) -> Response:
    """Return a JSON response in the spacing that clients match on."""
    data = encode(body).encode("ascii")
    return Response(data, status, {"Content-Type": "application/json", **headers})


async def handle_api_error(error: ApiError) -> Response:
    """Render a refusal.

    Message and parameter may repeat parts of the request, which may hold a secret.
    """
    param = error.param if error.param is None else redact_message(error.param)
    shown = {**error.envelope()["error"], "message": redact_message(error.message), "param": param}
    return json_response({"error": shown}, error.status, error.headers)


async def handle_http_exception(error: HTTPException) -> Response:
    """Render a refusal of Quart or Werkzeug: unknown path, wrong method, oversized or slow body."""
    status = error.code or 500
    missing = _NOT_SUPPORTED.get((request.method, request.path.rstrip("/")))
    if missing is not None and status in {404, 405}:
        return await handle_api_error(ApiError(404, missing, code="not_supported"))
    message = _MESSAGES.get(status, error.description or error.name)
    kind = INVALID_REQUEST if status < 500 else SERVER_ERROR
    kept = {name: value for name, value in error.get_headers() if name in {"Allow", "Retry-After"}}
    return await handle_api_error(
        ApiError(status, message, kind, code=_CODES.get(status), headers=kept)
    )


async def handle_store_error(error: StoreError) -> Response:
    """Render a failure of the store, which a client may retry."""
    log.error("the store failed", error=str(error))
    message = "The session store is not available."
    headers = {"Retry-After": "1"}
    return await handle_api_error(
        ApiError(503, message, SERVER_ERROR, code="session_db_unavailable", headers=headers)
    )


async def handle_internal_error(_: InternalServerError) -> Response:
    """Render an unhandled exception, which Quart has logged, with the request id, and signalled.

    The agent may have run before it, so clients are told not to retry by themselves.
    """
    message = "The server made a mistake."
    return await handle_api_error(
        ApiError(500, message, SERVER_ERROR, code="internal_error", headers=NO_RETRY)
    )
