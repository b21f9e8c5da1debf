"""Errors that reach a client or an operator, and the one envelope in which clients see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"
RATE_LIMIT = "rate_limit_error"


@frozen
class ApiError(Exception):
    """An error that the client receives in OpenAI's envelope, with an HTTP status and headers."""

    status: int
    message: str
    type: str = INVALID_REQUEST
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(factory=dict)
    extra: Mapping[str, Any] = field(factory=dict)

    def envelope(self) -> dict[str, Any]:
        """Return the body of the HTTP response."""
        shown = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": {**shown, **self.extra}}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return a 400 that names the offending parameter."""
    return ApiError(400, message, param=param, code=code)


class ConfigurationError(Exception):
    """The server cannot start with its configuration. The message is one line for the operator."""
