"""The changes a turn reports after filtering.

A run's log is a list of them; streams and records derive from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from hermes_trio.core.events import AnsweredBy, Choice
from hermes_trio.core.outcome import Outcome
from hermes_trio.core.state import CallState


@frozen
class TextAdded:
    """Text was added to the visible answer."""

    item: int  # position in the turn's items
    text: str


@frozen
class ReasoningAdded:
    """Reasoning was added."""

    item: int
    text: str


@frozen
class CallStarted:
    """A tool call started."""

    item: int
    call_id: str
    name: str
    args: Mapping[str, Any]
    at: float


@frozen
class ToolOutputAdded:
    """A running call produced output."""

    item: int
    call_id: str
    text: str


@frozen
class CallEnded:
    """A tool call ended."""

    item: int
    call_id: str
    name: str
    state: CallState
    result: str
    is_error: bool
    duration: float


@frozen
class ClientToolCalled:
    """A tool of the client was called.

    The client runs it and sends the result in its next request.
    """

    item: int
    call_id: str
    name: str
    arguments: str


@frozen
class ApprovalRequested:
    """The agent waits for an approval."""

    approval_id: str
    call_id: str  # of the visible call it belongs to, "" for none
    command: str
    description: str
    patterns: tuple[str, ...]
    allow_permanent: bool
    seconds: float
    at: float


@frozen
class ApprovalResolved:
    """An approval request was answered."""

    approval_id: str
    call_id: str
    choice: Choice
    by: AnsweredBy
    at: float


@frozen
class NumbersSkipped:
    """The process died: later events have numbers that no client can have seen.

    Recovery puts it between the changes that the dead process stored and the end of the run. What that
    process sent after its last write is not in the log, but its numbers are not reused.
    """

    count: int


@frozen
class Ended:
    """The turn ended. Always the last change."""

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
    | NumbersSkipped
    | Ended
)
