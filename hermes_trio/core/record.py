"""What the store keeps of a run."""

from __future__ import annotations

from attrs import frozen

from hermes_trio.core.messages import Message, Usage


@frozen
class TurnRecord:
    """The terminal form of one run: all that was said, and how it ended."""

    principal: str
    run_id: str
    session_id: str
    model: str
    status: str
    reason: str
    started_at: float
    ended_at: float
    usage: Usage
    messages: tuple[Message, ...]  # the user's message first, then everything the agent did
