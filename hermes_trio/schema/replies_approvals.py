"""What the routes about approvals answer, as classes."""

from __future__ import annotations

from typing import Literal

from attrs import frozen


@frozen
class ApprovalReply:
    """Questions that were answered."""

    object: Literal["hermes.run.approval_response"]
    run_id: str
    choice: Literal["once", "session", "always", "deny"]
    resolved: int


@frozen
class RememberedApproval:
    """An approval that holds until it is revoked."""

    object: Literal["hermes.approval"]
    pattern: str
    session_id: str | None  # null: in all sessions
    created_at: float


@frozen
class RememberedApprovals:
    """All of them, oldest first."""

    object: Literal["list"]
    data: list[RememberedApproval]


@frozen
class RevokedApproval:
    """One that does not hold any more."""

    object: Literal["hermes.approval.deleted"]
    pattern: str
    session_id: str | None
    deleted: Literal[True]
