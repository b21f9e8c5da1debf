"""Chat Completions: changes rendered as a stream of chunks, or collected into one reply.

The order of a stream: the role chunk at once; content, reasoning and tool progress as they come;
the error, if the run failed; one finish chunk; the usage chunk if requested; ``[DONE]``.

An error is a frame of its own without ``choices``: the OpenAI SDKs raise on it in any frame, but
the AI SDK and Open WebUI overlook it in a chunk.

Tool progress and approval events are also complete chunks with an empty delta. SDKs ignore the name
of an event and parse its data as a chunk, so anything less breaks the plain loops of both OpenAI
SDKs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from attrs import frozen

from hermes_trio.core import tool_display
from hermes_trio.core.changes import (
    ApprovalRequested,
    ApprovalResolved,
    CallEnded,
    CallStarted,
    Change,
    ClientToolCalled,
    Ended,
    ReasoningAdded,
    TextAdded,
)
from hermes_trio.core.dialects.wire import (
    DONE,
    PREVIEW_CHARACTERS,
    SHOWN_CHARACTERS,
    approval_status,
    data_frame,
    encode,
    named_frame,
    quoted,
    request_fields,
    resolution_fields,
    status_event,
)
from hermes_trio.core.errors import SERVER_ERROR, ApiError
from hermes_trio.core.messages import Usage
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.records import Stamp
from hermes_trio.core.redact import header_safe
from hermes_trio.core.shorten import shorten, shorten_json

CHUNK = "chat.completion.chunk"
PROGRESS = "hermes.tool.progress"
APPROVAL_REQUEST = "hermes.approval.request"
APPROVAL_RESPONDED = "hermes.approval.responded"

# A repeated POST would run the agent, and its tools, a second time. The OpenAI SDKs obey this
# header; other clients go by the status alone and retry 408, 409, 429 and everything from 500 on.
NO_RETRY = {"x-should-retry": "false"}
AGENT_FAILED = 424

# A cancelled run is not an error: it was stopped on request, and the hermes block says so.
_ERRORS = (Status.INCOMPLETE, Status.FAILED)

_UNFINISHED = Outcome.from_cancellation(Reason.SERVER_ERROR)  # the outcome of a log without an end


# -- outcomes --


def finish_reason(outcome: Outcome, calls_client: bool = False) -> str:
    """Return the finish reason: stop, tool_calls, length or error."""
    if calls_client and outcome.status is Status.COMPLETED:
        return "tool_calls"
    if outcome.reason is Reason.MAX_OUTPUT_TOKENS:
        return "length"
    return "error" if outcome.status in _ERRORS else "stop"


def usage_block(usage: Usage) -> dict[str, Any]:
    """Return token counts under their Chat Completions names."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def outcome_flags(outcome: Outcome) -> dict[str, Any]:
    """Return the three booleans that existing clients read, and the reason behind them."""
    return {
        "completed": outcome.status is Status.COMPLETED,
        "partial": outcome.status in {Status.INCOMPLETE, Status.CANCELLED},
        "failed": outcome.status is Status.FAILED,
        "reason": str(outcome.reason) or None,
    }


def outcome_headers(outcome: Outcome) -> dict[str, str]:
    """Return the headers that existing clients read about a turn that did not complete normally."""
    if outcome.status is Status.COMPLETED:
        return {}
    partial = str(outcome_flags(outcome)["partial"]).lower()
    headers = {"X-Hermes-Completed": "false", "X-Hermes-Partial": partial}
    if outcome.failure.message:
        headers["X-Hermes-Error"] = header_safe(outcome.failure.message)
    return headers


def hermes_block(outcome: Outcome) -> dict[str, Any]:
    """Return the ``hermes`` field: what a finish reason cannot express.

    Empty for a completed run.
    """
    if outcome.status is Status.COMPLETED:
        return {}
    error = outcome.failure.message or None
    return {
        "hermes": {**outcome_flags(outcome), "error": error, "error_code": _error_code(outcome)}
    }


def error_frame(outcome: Outcome) -> bytes:
    """Return the frame that reports a fatal end, empty for any other end.

    SDKs raise on it, so truncated and stopped answers have none.
    """
    if finish_reason(outcome) != "error":
        return b""
    error = {
        "message": outcome.failure.message,
        "type": outcome.failure.kind,
        "code": _error_code(outcome),
        "param": None,
    }
    return data_frame(encode({"error": error}))


def _error_code(outcome: Outcome) -> str:
    return "output_truncated" if outcome.reason is Reason.MAX_OUTPUT_TOKENS else str(outcome.reason)


def _client_call(change: ClientToolCalled) -> dict[str, Any]:
    """Return a call that the client runs, in the standard form."""
    function = {"name": change.name, "arguments": change.arguments}
    return {"id": change.call_id, "type": "function", "function": function}


# -- streams --


@frozen
class ChatOptions:
    """Choices of a request about its stream."""

    include_usage: bool = False
    status_line: bool = False  # add `event` objects, which Open WebUI shows as a live status


DEFAULT_OPTIONS = ChatOptions()


class ChatStream:
    """Renders one run. Keeps only the descriptions of running calls and the number of client calls."""

    def __init__(self, stamp: Stamp, options: ChatOptions = DEFAULT_OPTIONS) -> None:
        self._options = options
        self._stamp = stamp
        self._descriptions: dict[str, str] = {}  # of the calls that run, for the status line
        self._client_calls = 0
        # Everything around a token is fixed for the run, so that a token costs little more than
        # escaping its text.
        self._before_choices = (
            f'data: {{"id": {quoted(stamp.run_id)}, "object": "{CHUNK}", "created": {stamp.created}, '
            f'"model": {quoted(stamp.model)}, "choices": ['
        )
        self._before_delta = f'{self._before_choices}{{"index": 0, "delta": '
        self._before_content = f'{self._before_delta}{{"content": '
        usage = ', "usage": null' if options.include_usage else ""
        self._after = f'}}, "finish_reason": null}}]{usage}}}\n\n'

    def opening(self) -> bytes:
        """Return the role chunk. It is sent before the agent starts."""
        return f'{self._before_delta}{{"role": "assistant"{self._after}'.encode("ascii")

    def render(self, changes: Iterable[Change]) -> bytes:
        """Return all frames of some changes, joined for one write."""
        return b"".join(map(self._frame, changes))

    def _frame(self, change: Change) -> bytes:
        if type(change) is TextAdded:  # by far the most frequent change
            return f"{self._before_content}{quoted(change.text)}{self._after}".encode("ascii")
        render = self._RENDERERS.get(type(change))
        return b"" if render is None else render(self, change)

    def _reasoning(self, change: ReasoningAdded) -> bytes:
        delta = f'{{"reasoning_content": {quoted(change.text)}'
        return f"{self._before_delta}{delta}{self._after}".encode("ascii")

    def _call_started(self, change: CallStarted) -> bytes:
        label = shorten(tool_display.label(change.name, change.args), PREVIEW_CHARACTERS)
        emoji = tool_display.emoji(change.name)
        args = shorten_json(change.args, SHOWN_CHARACTERS)
        description = self._descriptions[change.call_id] = f"{emoji} {change.name}: {label}"
        return self._event(
            PROGRESS,
            {
                "tool": change.name,
                "name": change.name,
                "emoji": emoji,
                "label": label,
                "toolCallId": change.call_id,
                "status": "running",
                "args": args,
                "input": args,
                **self._status_line(description, done=False),
            },
        )

    def _call_ended(self, change: CallEnded) -> bytes:
        # A stream that continues a run after a question has not seen how its call began.
        name = f"{tool_display.emoji(change.name)} {change.name}"
        description = self._descriptions.pop(change.call_id, name)
        result = shorten(change.result, SHOWN_CHARACTERS)
        return self._event(
            PROGRESS,
            {
                "tool": change.name,
                "name": change.name,
                "toolCallId": change.call_id,
                "status": str(change.state),
                "result": result,
                "output": result,
                "duration": round(change.duration, 3),
                "isError": change.is_error,
                **self._status_line(description, done=True),
            },
        )

    def _client_tool_called(self, change: ClientToolCalled) -> bytes:
        call = {"index": self._client_calls, **_client_call(change)}
        self._client_calls += 1
        return data_frame(encode(self._chunk({"tool_calls": [call]})))

    def _approval_requested(self, change: ApprovalRequested) -> bytes:
        # Nested, because the chunk and the request both have a field `choices`.
        return self._approval_event(APPROVAL_REQUEST, request_fields(change), change)

    def _approval_resolved(self, change: ApprovalResolved) -> bytes:
        return self._approval_event(APPROVAL_RESPONDED, resolution_fields(change), change)

    def _approval_event(
        self, name: str, fields: Mapping[str, Any], change: ApprovalRequested | ApprovalResolved
    ) -> bytes:
        status = approval_status(change) if self._options.status_line else {}
        return self._event(name, {"approval": fields, **status})

    def _ended(self, change: Ended) -> bytes:
        outcome = change.outcome
        usage = encode(usage_block(outcome.usage))
        usage_chunk = b""
        if self._options.include_usage:
            usage_chunk = f'{self._before_choices}], "usage": {usage}}}\n\n'.encode("ascii")
            usage = "null"
        blocks = hermes_block(outcome)
        more = f", {encode(blocks)[1:-1]}" if blocks else ""
        reason = finish_reason(outcome, self._client_calls > 0)
        end = f'{{}}, "finish_reason": "{reason}"}}], "usage": {usage}{more}}}\n\n'
        finish = f"{self._before_delta}{end}".encode("ascii")
        settled = b""
        if self._options.status_line:
            # Only a reply that ends with a question leaves calls that go on after it: the status
            # line must not show them as running.
            settled = b"".join(
                data_frame(encode({**self._chunk({}), **status_event(description, done=True)}))
                for description in self._descriptions.values()
            )
        return settled + error_frame(outcome) + finish + usage_chunk + DONE

    def _event(self, name: str, fields: Mapping[str, Any]) -> bytes:
        return named_frame(name, encode({**self._chunk({}), **fields}))

    def _status_line(self, description: str, done: bool) -> dict[str, Any]:
        return status_event(description, done) if self._options.status_line else {}

    def _chunk(self, delta: Mapping[str, Any]) -> dict[str, Any]:
        usage = {"usage": None} if self._options.include_usage else {}
        return {
            "id": self._stamp.run_id,
            "object": CHUNK,
            "created": self._stamp.created,
            "model": self._stamp.model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
            **usage,
        }

    # ToolOutputAdded is missing on purpose: chat shows one event when a call starts and one when it
    # ends.
    _RENDERERS: ClassVar[Mapping[type[Change], Callable[[ChatStream, Any], bytes]]] = {
        ReasoningAdded: _reasoning,
        CallStarted: _call_started,
        CallEnded: _call_ended,
        ClientToolCalled: _client_tool_called,
        ApprovalRequested: _approval_requested,
        ApprovalResolved: _approval_resolved,
        Ended: _ended,
    }


# -- batch replies --


@frozen
class BatchReply:
    """The reply to a request that did not stream."""

    body: Mapping[str, Any]
    headers: Mapping[str, str]


class ChatCollector:
    """Collects the changes of one run into a reply."""

    def __init__(self, stamp: Stamp, failure_status: int = AGENT_FAILED) -> None:
        self._stamp = stamp
        self._failure_status = failure_status
        self._texts: dict[int, list[str]] = {}
        self._reasoning: list[str] = []
        self._client_calls: list[dict[str, Any]] = []
        self._outcome = _UNFINISHED

    def take(self, changes: Iterable[Change]) -> None:
        """Add some changes."""
        for change in changes:
            match change:
                case TextAdded(item, text):
                    self._texts.setdefault(item, []).append(text)
                case ReasoningAdded(_, text):
                    self._reasoning.append(text)
                case ClientToolCalled():
                    self._client_calls.append(_client_call(change))
                case Ended(outcome):
                    self._outcome = outcome
                case _:
                    pass  # calls that ran on the server are not part of a batch reply

    @property
    def outcome(self) -> Outcome:
        """How the run ended; a server error if its end was not added."""
        return self._outcome

    @property
    def answer(self) -> str:
        """The text after the last tool round, or all text if the run did not complete."""
        texts = ["".join(parts) for parts in self._texts.values()]
        return "".join(texts[-1:] if self._outcome.status is Status.COMPLETED else texts)

    def reply(self, answer: str) -> BatchReply:
        """Return the reply, with ``answer`` as its text.

        Raises:
            ApiError: the agent raised, or ended early and without text. The status is the one for
                failures; where that is 500, a turn that ended early has 502.
        """
        outcome, status = self._outcome, self._failure_status
        headers = outcome_headers(outcome)
        if outcome.raised:
            message = outcome.failure.message
            raise ApiError(
                status, message, SERVER_ERROR, code="agent_error", headers=headers | NO_RETRY
            )
        if not answer and outcome.status is not Status.COMPLETED:
            raise ApiError(
                502 if status == 500 else status,
                outcome.failure.message or "The agent ended without an answer.",
                SERVER_ERROR,
                code="agent_incomplete",
                headers=headers | NO_RETRY,
                extra={"hermes": outcome_flags(outcome)},
            )
        return BatchReply(self._body(answer), headers)

    def _body(self, answer: str) -> dict[str, Any]:
        content = answer or (None if self._client_calls else "")
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if self._client_calls:
            message["tool_calls"] = self._client_calls
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        reason = finish_reason(self._outcome, bool(self._client_calls))
        return {
            "id": self._stamp.run_id,
            "object": "chat.completion",
            "created": self._stamp.created,
            "model": self._stamp.model,
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": usage_block(self._outcome.usage),
            **hermes_block(self._outcome),
        }
