"""Bodies of the Runs API and of its approvals, parsed into requests."""

from __future__ import annotations

from typing import Any

from attrs import asdict, frozen

from hermes_trio.core.errors import bad_request
from hermes_trio.core.events import Choice
from hermes_trio.schema.chat import HistoryBody
from hermes_trio.schema.conversations import find_references
from hermes_trio.schema.parsing import convert, parse_bool, parse_object, parse_session_id
from hermes_trio.schema.responses import ResponsesBody, ResponsesRequest, read_responses


@frozen
class RunBody:
    """A run to start: a Responses request, and a session. Unknown fields are ignored."""

    input: Any = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation_history: list[HistoryBody] | None = None
    session_id: str | None = None
    model: str | None = None
    metadata: dict[str, Any] | None = None


@frozen
class RunRequest:
    """A parsed request."""

    responses_request: ResponsesRequest  # the fields it shares with the Responses API
    session_id: str  # "" if the client named none


def parse_run(raw: bytes) -> RunRequest:
    """Parse a request body.

    Raises:
        ApiError: 400, naming the invalid parameter.
    """
    body = convert(parse_object(raw), RunBody)
    shared = asdict(body, recurse=False)
    session = parse_session_id(shared.pop("session_id") or "", "session_id")
    request = read_responses(ResponsesBody(**shared))
    if not find_references(request.input_items):
        require_user_message(request)
    return RunRequest(request, session)


def require_user_message(request: ResponsesRequest) -> None:
    """Check the last message of an input without references.

    Raises:
        ApiError: 400 if it is not the user's.
    """
    if not request.messages or request.messages[-1].role != "user":
        raise bad_request("The last element of 'input' must be a user message.", "input")


_CHOICE_ALIASES = dict.fromkeys(("approve", "approved", "allow"), Choice.ONCE)
_CHOICES = {str(choice): choice for choice in Choice} | _CHOICE_ALIASES


@frozen
class ApprovalBody:
    """The choice, and the requests it answers: one by id, all, or by default the oldest."""

    choice: str
    approval_id: str | None = None
    all: Any = None
    resolve_all: Any = None


@frozen
class ApprovalAnswer:
    """A parsed request."""

    choice: Choice
    approval_id: str
    everything: bool


def parse_approval(raw: bytes) -> ApprovalAnswer:
    """Parse a request body.

    Raises:
        ApiError: 400, naming the invalid parameter.
    """
    body = convert(parse_object(raw), ApprovalBody)
    choice = _CHOICES.get(body.choice.strip().lower())
    if choice is None:
        names = ", ".join(f"'{name}'" for name in Choice)
        raise bad_request(f"'choice' must be one of {names}.", "choice", "invalid_approval_choice")
    everything = parse_bool(body.all, default=False) or parse_bool(body.resolve_all, default=False)
    return ApprovalAnswer(choice, body.approval_id or "", everything)
