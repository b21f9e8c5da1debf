"""What the Runs routes answer, as classes."""

from __future__ import annotations

from typing import Any, Literal

from attrs import frozen


@frozen
class RunStarted:
    """A run that was begun."""

    run_id: str
    status: Literal["started"]


@frozen
class RunReply:
    """A run as it stands. One that has ended has its output and usage, and says why it did not simply complete."""

    object: Literal["hermes.run"]
    run_id: str
    kind: str
    status: Literal[
        "queued", "running", "waiting_for_approval", "stopping", "completed", "failed", "cancelled"
    ]
    created_at: float
    updated_at: float
    session_id: str
    model: str
    last_event: str
    metadata: dict[str, str]
    output: str | None = None
    usage: dict[str, Any] | None = None
    error: str | None = None
    reason: str | None = None
    incomplete: bool | None = None
    approval: dict[str, Any] | None = None  # the question that waits longest
    approvals_pending: int | None = None


@frozen
class RunList:
    """A page of runs, without their output."""

    object: Literal["list"]
    data: list[RunReply]
    first_id: str | None
    last_id: str | None
    has_more: bool


@frozen
class RunStopped:
    """A run that was asked to stop, or that had ended before."""

    run_id: str
    status: Literal["stopping", "completed", "failed", "cancelled"]


@frozen
class RunEvent:
    """One event of a run; the rest of its fields depend on its kind."""

    event: str
    run_id: str
    timestamp: float
    seq: int
