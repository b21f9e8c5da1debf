"""Every error as the one envelope."""

from __future__ import annotations

import structlog
from quart import Response
from quart.wrappers.response import DataBody
from werkzeug.exceptions import HTTPException

from hermes_trio.core.dialects.chat_batch import NO_RETRY
from hermes_trio.core.errors import INVALID_REQUEST, SERVER_ERROR, ApiError
from hermes_trio.core.redact import redact
from hermes_trio.core.wire import encode
from hermes_trio.stores.contract import StoreError
from hermes_trio.web.ready import Ready

log = structlog.get_logger(__name__)

_CODES = {404: "not_found", 405: "method_not_allowed", 408: "request_timeout", 413: "body_too_large"}
_MESSAGES = {
    404: "There is nothing at this path.",
    405: "This path does not take this method.",
    408: "The request body took too long to arrive.",
    413: "The request body is too large.",
}


def json_response(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer in the spacing of the wire."""
    data = encode(body).encode("ascii")
    fields = {"Content-Type": "application/json", **(headers or {}), "Content-Length": str(len(data))}
    return Ready(DataBody(data), status, fields)


async def refused(error: ApiError) -> Response:
    """A refusal of ours. What it repeats of the request, be it only the name of a field, may hold a secret."""
    param = error.param if error.param is None else redact(error.param)
    shown = {**error.envelope()["error"], "message": redact(error.message), "param": param}
    return json_response({"error": shown}, error.status, dict(error.headers))


async def refused_by_framework(error: HTTPException) -> Response:
    """A refusal of Quart's or Werkzeug's: unknown path, wrong method, oversized or slow body."""
    status = error.code or 500
    message = _MESSAGES.get(status, error.description or error.name)
    kind = INVALID_REQUEST if status < 500 else SERVER_ERROR
    kept = {name: value for name, value in error.get_headers() if name in {"Allow", "Retry-After"}}
    return await refused(ApiError(status, message, kind, code=_CODES.get(status), headers=kept))


async def store_failed(error: StoreError) -> Response:
    """The store is in trouble: say so, and that it is worth another try."""
    log.error("the store failed", error=str(error))
    message = "The session store is not available."
    headers = {"Retry-After": "1"}
    return await refused(ApiError(503, message, SERVER_ERROR, code="session_db_unavailable", headers=headers))


async def failed(error: Exception) -> Response:
    """A mistake of ours. The details are in the log, under the request's id.

    Nobody knows whether the agent ran before it, so clients should not repeat the request by themselves.
    """
    log.error("unhandled error", exc_info=error)
    message = "The server made a mistake."
    return await refused(ApiError(500, message, SERVER_ERROR, code="internal_error", headers=NO_RETRY))
