"""The items of a turn, in the order in which they began."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from hermes_trio.core.lifecycle import CallState


@frozen
class MessageItem:
    """Visible text between two tool rounds."""

    text: str


@frozen
class ReasoningItem:
    """Thinking between two other items."""

    text: str


@frozen
class CallItem:
    """A tool call with all that is known of it. Never shortened: only what is shown is."""

    call_id: str
    name: str
    args: Mapping[str, Any]
    state: CallState
    result: str
    is_error: bool
    duration: float
    # When it ended, as a place in the order of things: after so many items had begun, and as the so-manieth result.
    after: int = 0
    rank: int = 0


@frozen
class ClientCallItem:
    """A call of a tool that the client runs. Its result, if it comes, is in what the client says next."""

    call_id: str
    name: str
    arguments: str


Item = MessageItem | ReasoningItem | CallItem | ClientCallItem
