"""Questions of an agent: may I do this? Asked once, answered once, by somebody or by the end of the run."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from hermes_trio.core.changes import ApprovalRequested, ApprovalResolved
from hermes_trio.core.events import AnsweredBy, ApprovalAnswered, ApprovalRequest, Choice


@frozen
class Decision:
    """What came of a question."""

    choice: Choice
    by: AnsweredBy

    @property
    def approved(self) -> bool:
        """Whether the agent may go on."""
        return self.choice is not Choice.DENY


@frozen
class Grant:
    """An approval that is remembered: whoever asks for the same pattern again need not wait."""

    principal: str
    session_id: str  # "" for all sessions of the principal
    pattern: str
    made_at: float


def offered(request: ApprovalRequested) -> tuple[Choice, ...]:
    """The answers that a question takes."""
    permanent = (Choice.ALWAYS,) if request.allow_permanent else ()
    return (Choice.ONCE, Choice.SESSION, *permanent, Choice.DENY)


class OpenApprovals:
    """The open questions of one turn."""

    def __init__(self) -> None:
        self._open: dict[str, ApprovalRequested] = {}

    def ask(self, wish: ApprovalRequest, call_id: str) -> Iterator[ApprovalRequested]:
        """A question, shown under the id of its call; nothing if it was asked before."""
        if wish.approval_id in self._open:
            return
        request = ApprovalRequested(
            wish.approval_id,
            call_id,
            wish.command,
            wish.description,
            wish.patterns,
            wish.allow_permanent,
            wish.seconds,
            wish.at,
        )
        self._open[wish.approval_id] = request
        yield request

    def answer(self, answer: ApprovalAnswered) -> Iterator[ApprovalResolved]:
        """Close a question; nothing if it is not open."""
        if (request := self._open.pop(answer.approval_id, None)) is not None:
            yield _resolved(request, answer)

    def close(self, at: float) -> Iterator[ApprovalResolved]:
        """The turn is over: nobody can answer any more, so the answer is no."""
        for approval_id in tuple(self._open):
            yield from self.answer(ApprovalAnswered(approval_id, Choice.DENY, AnsweredBy.RUN_ENDED, at))


def _resolved(request: ApprovalRequested, answer: ApprovalAnswered) -> ApprovalResolved:
    return ApprovalResolved(request.approval_id, request.call_id, answer.choice, answer.by, answer.at)
