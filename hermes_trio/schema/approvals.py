"""The answer to an agent's question, as clients send it."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from hermes_trio.core.errors import bad_request
from hermes_trio.core.events import Choice
from hermes_trio.schema.fields import boolean_like
from hermes_trio.schema.json import convert, parse_object

_OTHER_WORDS = dict.fromkeys(("approve", "approved", "allow"), Choice.ONCE)
_CHOICES = {str(choice): choice for choice in Choice} | _OTHER_WORDS


@frozen
class ApprovalBody:
    """The choice, and which question it answers: the one with this id, all of them, or else the oldest."""

    choice: str
    approval_id: str | None = None
    all: Any = None
    resolve_all: Any = None


@frozen
class ApprovalAnswer:
    """What the route works with."""

    choice: Choice
    approval_id: str
    everything: bool


def parse_approval(raw: bytes) -> ApprovalAnswer:
    """Read a request body.

    Raises:
        ApiError: 400, naming the parameter that is wrong.
    """
    body = convert(parse_object(raw), ApprovalBody)
    choice = _CHOICES.get(body.choice.strip().lower())
    if choice is None:
        names = ", ".join(f"'{name}'" for name in Choice)
        raise bad_request(f"'choice' must be one of {names}.", "choice", "invalid_approval_choice")
    everything = boolean_like(body.all, default=False) or boolean_like(body.resolve_all, default=False)
    return ApprovalAnswer(choice, body.approval_id or "", everything)
