"""``POST /v1/runs``: the body as clients send it, and the request that is made of it."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from hermes_trio.core.errors import bad_request
from hermes_trio.core.log_codec import as_dict
from hermes_trio.schema.fields import session_id
from hermes_trio.schema.json import convert, parse_object
from hermes_trio.schema.responses import HistoryBody, ResponsesBody, ResponsesRequest, read_responses


@frozen
class RunBody:
    """A run to be started. All but the session is as in a Responses request; other fields are ignored."""

    input: Any = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation_history: list[HistoryBody] | None = None
    session_id: str | None = None
    model: str | None = None
    metadata: dict[str, Any] | None = None


@frozen
class RunRequest:
    """What the route works with."""

    asked: ResponsesRequest
    session_id: str  # "" when the client named none


def parse_run(raw: bytes) -> RunRequest:
    """Read a request body.

    Raises:
        ApiError: 400, naming the parameter that is wrong.
    """
    body = convert(parse_object(raw), RunBody)
    shared = as_dict(body)
    session = session_id(shared.pop("session_id") or "", "session_id")
    asked = read_responses(ResponsesBody(**shared))
    if asked.messages[-1].role != "user":
        raise bad_request("The last element of 'input' must be a user message.", "input")
    return RunRequest(asked, session)
