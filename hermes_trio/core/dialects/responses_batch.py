"""Responses, in one piece: the same changes as the stream, collected into one object."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hermes_trio.core.changes import ApprovalRequested, ApprovalResolved, Change, Ended
from hermes_trio.core.dialects.chat_batch import Reply, outcome_headers
from hermes_trio.core.dialects.responses_items import ResultForm
from hermes_trio.core.dialects.responses_object import response_body
from hermes_trio.core.dialects.responses_output import Output
from hermes_trio.core.outcome import Outcome, Reason, of_cut
from hermes_trio.core.record import RunHeader


class ResponsesCollector:
    """Changes in, one response out."""

    def __init__(self, header: RunHeader) -> None:
        self._header = header
        self._output = Output(header.run_id)
        self._end: Ended | None = None
        self._questions: dict[str, ApprovalRequested] = {}

    def take(self, changes: Iterable[Change]) -> None:
        """Feed some changes."""
        for change in changes:
            self._output.take_all([change])
            match change:
                case Ended():
                    self._end = change
                case ApprovalRequested(approval_id):
                    self._questions[approval_id] = change
                case ApprovalResolved(approval_id):
                    del self._questions[approval_id]
                case _:
                    pass

    @property
    def outcome(self) -> Outcome:
        """How the run ended; a run whose end never came is the server's failure."""
        return of_cut(Reason.SERVER_ERROR) if self._end is None else self._end.outcome

    def snapshot(self) -> dict[str, Any]:
        """The response as it stands, in progress until the end was taken."""
        output = self._output.items(ResultForm.TEXT)
        if self._end is None:
            return response_body(self._header, output, questions=tuple(self._questions.values()))
        return response_body(self._header, output, self._end.outcome, self._end.at)

    def reply(self) -> Reply:
        """The answer to a request that waited for it.

        It is a 200 whatever became of the run, as with OpenAI: the response's own status tells.
        """
        end = self._end or Ended(self.outcome)
        self._output.take_all([end])
        output = self._output.items(ResultForm.TEXT)
        return Reply(response_body(self._header, output, end.outcome, end.at), outcome_headers(end.outcome))
