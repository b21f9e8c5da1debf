"""Replies that end with an approval request, which the next chat message answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from hermes_trio.core.approvals import question_text
from hermes_trio.core.changes import ApprovalRequested, Ended, TextAdded
from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.runs.approvals import OpenQuestion
from hermes_trio.runs.log import ChangeReader, Changes

_LAST_ITEM = 2**31  # after every item of a turn
_ASKED = Ended(Outcome(Status.COMPLETED))

Pause = Callable[[OpenQuestion], Awaitable[bool]]


class QuestionReader(ChangeReader):
    """Reads a run up to an open approval request, and ends there as if the turn had.

    The request becomes the last text of the reply. The run goes on waiting for its answer.

    Args:
        reader: reads the run.
        pause: tells the run that a reply ends with a question; returns False if it has been answered.
        first: the number of the first change that the reader receives.
    """

    def __init__(self, reader: ChangeReader, pause: Pause, first: int = 0) -> None:
        self._reader, self._pause, self._position = reader, pause, first
        self._gap: Changes = ()  # between the text so far and the question
        self._received: Changes = ()  # but not looked at yet
        self._is_over = False

    async def receive(self) -> Changes:
        """Return the next changes. See :meth:`ChangeReader.receive`. It may be cancelled and called again."""
        if self._is_over:
            raise trio.EndOfChannel
        self._received = self._received or await self._reader.receive()
        changes = await self._until_question(self._received)
        self._position += len(self._received)
        self._received = ()
        return changes

    def receive_nowait(self) -> Changes:
        """Return the changes that are there now. See :meth:`ChangeReader.receive_nowait`."""
        if self._is_over or self._received:
            raise trio.WouldBlock
        changes = self._reader.receive_nowait()
        if any(isinstance(change, ApprovalRequested) for change in changes):
            self._received = changes
            raise trio.WouldBlock
        self._note_text(changes)
        self._position += len(changes)
        return changes

    async def _until_question(self, changes: Changes) -> Changes:
        for number, change in enumerate(changes):
            self._note_text((change,))
            if isinstance(change, ApprovalRequested):
                question = OpenQuestion(change.approval_id, self._position + number + 1)
                if await self._pause(question):
                    self._is_over = True
                    asked = TextAdded(_LAST_ITEM, question_text(change))
                    return (*changes[:number], *self._gap, asked, _ASKED)
        return changes

    def _note_text(self, changes: Changes) -> None:
        texts = [change for change in changes if isinstance(change, TextAdded)]
        if texts:
            self._gap = (TextAdded(texts[-1].item, "\n\n"),)
