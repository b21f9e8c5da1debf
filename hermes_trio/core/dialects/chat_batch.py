"""Chat Completions, in one piece: the same changes as the stream, collected into one reply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

from hermes_trio.core.changes import Change, ClientCalled, Ended, ReasoningAdded, TextAdded
from hermes_trio.core.dialects.chat import client_call, finish_reason, flags, hermes_block, usage_block
from hermes_trio.core.errors import SERVER_ERROR, ApiError
from hermes_trio.core.outcome import Outcome, Reason, Status, of_cut
from hermes_trio.core.record import Stamp
from hermes_trio.core.redact import header_safe

_NO_END = of_cut(Reason.SERVER_ERROR)  # holds if the end never comes

# A repeated POST would run the agent, and its tools, a second time.
NO_RETRY = {"x-should-retry": "false"}


@frozen
class Reply:
    """A whole answer."""

    body: Mapping[str, Any]
    headers: Mapping[str, str]


class ChatCollector:
    """Changes in, one reply out."""

    def __init__(self, stamp: Stamp) -> None:
        self._stamp = stamp
        self._texts: dict[int, list[str]] = {}
        self._reasoning: list[str] = []
        self._client_calls: list[dict[str, Any]] = []
        self._outcome = _NO_END

    def take(self, changes: Iterable[Change]) -> None:
        """Feed some changes."""
        for change in changes:
            if type(change) is TextAdded:  # most of them are
                self._texts.setdefault(change.item, []).append(change.text)
            else:
                self._take(change)

    def _take(self, change: Change) -> None:
        match change:
            case ReasoningAdded(_, text):
                self._reasoning.append(text)
            case ClientCalled():
                self._client_calls.append(client_call(change))
            case Ended(outcome):
                self._outcome = outcome
            case _:
                pass  # calls that ran here are shown in streams; a reply has one message

    @property
    def outcome(self) -> Outcome:
        """How the run ended."""
        return self._outcome

    @property
    def answer(self) -> str:
        """The text after the last tool round; of a turn that was cut, everything there is."""
        texts = ["".join(parts) for parts in self._texts.values()]
        return "".join(texts[-1:] if self._outcome.status is Status.COMPLETED else texts)

    def reply(self, answer: str) -> Reply:
        """The reply with the given text as its answer.

        Raises:
            ApiError: 500 if the agent raised, 502 if it ended without any text.
        """
        outcome = self._outcome
        if outcome.raised:
            headers = {**outcome_headers(outcome), **NO_RETRY}
            raise ApiError(500, outcome.failure.message, SERVER_ERROR, code="agent_error", headers=headers)
        if not answer and outcome.status is not Status.COMPLETED:
            raise self._nothing_to_show()
        return Reply(self._body(answer), outcome_headers(outcome))

    def _nothing_to_show(self) -> ApiError:
        outcome = self._outcome
        message = outcome.failure.message or "The agent ended without an answer."
        headers = {**outcome_headers(outcome), **NO_RETRY}
        extra = {"hermes": flags(outcome)}
        return ApiError(502, message, SERVER_ERROR, code="agent_incomplete", headers=headers, extra=extra)

    def _body(self, answer: str) -> dict[str, Any]:
        content = answer or (None if self._client_calls else "")
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if self._client_calls:
            message["tool_calls"] = self._client_calls
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        reason = finish_reason(self._outcome, bool(self._client_calls))
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return {
            "id": self._stamp.run_id,
            "object": "chat.completion",
            "created": self._stamp.created,
            "model": self._stamp.model,
            "choices": [choice],
            "usage": usage_block(self._outcome.usage),
            **hermes_block(self._outcome),
        }


def outcome_headers(outcome: Outcome) -> dict[str, str]:
    """What clients of today's server read about a turn that did not simply complete."""
    if outcome.status is Status.COMPLETED:
        return {}
    shown = flags(outcome)
    headers = {"X-Hermes-Completed": "false", "X-Hermes-Partial": str(shown["partial"]).lower()}
    if outcome.failure.message:
        headers["X-Hermes-Error"] = header_safe(outcome.failure.message)
    return headers
