"""What a turn reports after filtering. A run's log is the list of these; every stream and record is made from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from hermes_trio.core.events import AnsweredBy, Choice
from hermes_trio.core.outcome import Outcome
from hermes_trio.core.state import CallState


@frozen
class TextAdded:
    """More of the visible answer."""

    item: int  # the position in the turn's items
    text: str


@frozen
class ReasoningAdded:
    """More thinking."""

    item: int
    text: str


@frozen
class CallStarted:
    """A tool call is running."""

    item: int
    call_id: str
    name: str
    args: Mapping[str, Any]
    at: float


@frozen
class ToolOutputAdded:
    """A running call printed something."""

    item: int
    call_id: str
    text: str


@frozen
class CallEnded:
    """A tool call is over."""

    item: int
    call_id: str
    name: str
    state: CallState
    result: str
    is_error: bool
    duration: float


@frozen
class ClientToolCalled:
    """A tool of the client's is called: the client runs it and comes back with the result."""

    item: int
    call_id: str
    name: str
    arguments: str


@frozen
class ApprovalRequested:
    """The agent waits for somebody's word."""

    approval_id: str
    call_id: str  # of the call that is shown; "" for none
    command: str
    description: str
    patterns: tuple[str, ...]
    allow_permanent: bool
    seconds: float
    at: float


@frozen
class ApprovalResolved:
    """The agent knows."""

    approval_id: str
    call_id: str
    choice: Choice
    by: AnsweredBy
    at: float


@frozen
class Ended:
    """The turn is over. Nothing follows."""

    outcome: Outcome
    at: float = 0.0  # seconds since the run began


Change = (
    TextAdded
    | ReasoningAdded
    | CallStarted
    | ToolOutputAdded
    | CallEnded
    | ClientToolCalled
    | ApprovalRequested
    | ApprovalResolved
    | Ended
)
