"""Approval requests: each is opened once and resolved once, by an answer or by the end of the turn."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from hermes_trio.core.changes import ApprovalRequested, ApprovalResolved
from hermes_trio.core.events import AnsweredBy, ApprovalAnswered, ApprovalRequest, Choice
from hermes_trio.core.shorten import shorten

QUESTION_CHARACTERS = 4_000  # of a command that is shown in a chat
_REMEMBERED = (Choice.SESSION, Choice.ALWAYS)


@frozen
class Decision:
    """The answer an agent receives to its request."""

    choice: Choice
    by: AnsweredBy

    @property
    def approved(self) -> bool:
        """Whether the agent may proceed."""
        return self.choice is not Choice.DENY


@frozen
class Grant:
    """A remembered approval: later requests with the same pattern are approved without asking."""

    principal: str
    session_id: str  # "" for all sessions of the principal
    pattern: str
    made_at: float
    end_user: str = ""  # of the principal's key; "" for a key without known end users


def offered_choices(request: ApprovalRequested) -> tuple[Choice, ...]:
    """Return the answers that a request accepts."""
    permanent = (Choice.ALWAYS,) if request.allow_permanent else ()
    return (Choice.ONCE, Choice.SESSION, *permanent, Choice.DENY)


_REPLIES = {
    **dict.fromkeys(("yes", "y", "ok", "okay", "allow", "approve", "once"), Choice.ONCE),
    **dict.fromkeys(("no", "n", "deny"), Choice.DENY),
    "session": Choice.SESSION,
    "always": Choice.ALWAYS,
}


def parse_reply(text: str) -> Choice | None:
    """Return the choice that a plain reply in a chat makes, None if it is about something else."""
    return _REPLIES.get(text.strip().rstrip(".!").lower())


def question_text(request: ApprovalRequested) -> str:
    """Return an approval request as a question in a chat, in Markdown, to be answered by a reply."""
    fence = "```"
    while fence in request.command:
        fence += "`"
    others = [choice for choice in offered_choices(request) if choice in _REMEMBERED]
    lines = [
        f"**Approval needed.** {request.description}".rstrip(),
        f"{fence}\n{shorten(request.command, QUESTION_CHARACTERS)}\n{fence}",
        f"Reply **yes** or **no** ({', '.join(others)}: yes, and do not ask again).",
    ]
    return "\n\n".join(lines)


class OpenApprovals:
    """The unanswered approval requests of one turn."""

    def __init__(self) -> None:
        self._open: dict[str, ApprovalRequested] = {}

    def request(self, event: ApprovalRequest, call_id: str) -> Iterator[ApprovalRequested]:
        """Open a request, shown under the id of its call. Yields nothing if it is open already."""
        if event.approval_id in self._open:
            return
        request = ApprovalRequested(
            event.approval_id,
            call_id,
            event.command,
            event.description,
            event.patterns,
            event.allow_permanent,
            event.seconds,
            event.at,
        )
        self._open[event.approval_id] = request
        yield request

    def resolve(self, answer: ApprovalAnswered) -> Iterator[ApprovalResolved]:
        """Close a request. Yields nothing if it is not open."""
        request = self._open.pop(answer.approval_id, None)
        if request is not None:
            yield ApprovalResolved(
                request.approval_id, request.call_id, answer.choice, answer.by, answer.at
            )

    @property
    def values(self) -> tuple[ApprovalRequested, ...]:
        """The open requests, oldest first."""
        return tuple(self._open.values())

    def defer(self, approval_id: str, call_id: str, at: float) -> ApprovalResolved:
        """Close a request that the next turn continues, with the call that waits for it."""
        del self._open[approval_id]
        return ApprovalResolved(approval_id, call_id, Choice.DENY, AnsweredBy.DEFERRED, at)

    def close(self, at: float) -> Iterator[ApprovalResolved]:
        """Deny every open request, because the turn has ended."""
        for approval_id in tuple(self._open):
            yield from self.resolve(
                ApprovalAnswered(approval_id, Choice.DENY, AnsweredBy.RUN_ENDED, at)
            )
