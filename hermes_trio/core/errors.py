"""What goes wrong, as values: one envelope for every error that a client can see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"
RATE_LIMIT = "rate_limit_error"


@frozen
class ApiError(Exception):
    """A refusal that reaches the client as the OpenAI error envelope.

    Raised by the pure parts too: it is a value that happens to travel up.
    """

    status: int
    message: str
    type: str = INVALID_REQUEST
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(factory=dict)
    extra: Mapping[str, Any] = field(factory=dict)

    def envelope(self) -> dict[str, Any]:
        """The body of the answer."""
        shown = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": {**shown, **self.extra}}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """The client's mistake, named by the parameter that holds it."""
    return ApiError(400, message, param=param, code=code)


class ConfigurationError(Exception):
    """The server cannot start as it was told to. The text is one line for the person at the terminal."""
