"""Chat Completions, streamed: changes in, SSE frames out.

The order on the wire: the role chunk at once; content, reasoning and tool progress as they come; one finish chunk;
the usage chunk if it was asked for; ``[DONE]``.

A progress event, as a question and its answer, is also a complete chunk that changes nothing. SDKs ignore the name of an event and read its data as
a chunk, so anything less breaks the plain loops of both OpenAI SDKs.
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
    data_frame,
    encode,
    named_frame,
    quoted,
    request_fields,
    response_fields,
)
from hermes_trio.core.errors import SERVER_ERROR, ApiError
from hermes_trio.core.messages import Usage
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.records import Stamp
from hermes_trio.core.redact import header_safe
from hermes_trio.core.shorten import shorten, shorten_json

# A run that was cancelled is not among them: somebody asked for it, and the hermes block tells.
_ERRORS = (Status.INCOMPLETE, Status.FAILED)


def finish_reason(outcome: Outcome, calls_client: bool = False) -> str:
    """One of stop, tool_calls, length, error."""
    if calls_client and outcome.status is Status.COMPLETED:
        return "tool_calls"
    if outcome.reason is Reason.MAX_OUTPUT_TOKENS:
        return "length"
    return "error" if outcome.status in _ERRORS else "stop"


def client_call(change: ClientToolCalled) -> dict[str, Any]:
    """A call of a tool that the client runs, in the form of the standard."""
    function = {"name": change.name, "arguments": change.arguments}
    return {"id": change.call_id, "type": "function", "function": function}


def usage_block(usage: Usage) -> dict[str, Any]:
    """Token counts under their Chat Completions names."""
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


def hermes_block(outcome: Outcome) -> dict[str, Any]:
    """What the finish reason cannot say; nothing for a plain completion."""
    if outcome.status is Status.COMPLETED:
        return {}
    return {
        "hermes": {**flags(outcome), "error": outcome.failure.message or None, "error_code": _code(outcome)}
    }


def flags(outcome: Outcome) -> dict[str, Any]:
    """The three booleans that clients of today's server read, and the reason behind them."""
    return {
        "completed": outcome.status is Status.COMPLETED,
        "partial": outcome.status in {Status.INCOMPLETE, Status.CANCELLED},
        "failed": outcome.status is Status.FAILED,
        "reason": str(outcome.reason) or None,
    }


def trouble_blocks(outcome: Outcome) -> dict[str, Any]:
    """Both of what a stream tells at the end of a run that did not complete."""
    return {**hermes_block(outcome), **error_block(outcome)}


def error_block(outcome: Outcome) -> dict[str, Any]:
    """The nested error of a fatal end. SDKs raise on it, so a truncated or a stopped answer has none."""
    if finish_reason(outcome) != "error":
        return {}
    message = outcome.failure.message
    return {
        "error": {"message": message, "type": outcome.failure.kind, "code": _code(outcome), "param": None}
    }


def _code(outcome: Outcome) -> str:
    return "output_truncated" if outcome.reason is Reason.MAX_OUTPUT_TOKENS else str(outcome.reason)


CHUNK = "chat.completion.chunk"
PROGRESS = "hermes.tool.progress"
APPROVAL_REQUEST = "hermes.approval.request"
APPROVAL_RESPONDED = "hermes.approval.responded"

# Front ends read line by line and give up on long lines (128 KiB in the oldest); every value stands twice in its
# event and one character can take twelve bytes when escaped.
SHOWN_CHARACTERS = 4_000


@frozen
class ChatOptions:
    """What a request chooses about its stream."""

    include_usage: bool = False
    status_line: bool = False  # Open WebUI shows `event` objects as a live status


DEFAULT_OPTIONS = ChatOptions()


class ChatStream:
    """Renders one run. It remembers little: the label of each running call, and how many the client has to run."""

    def __init__(self, stamp: Stamp, options: ChatOptions = DEFAULT_OPTIONS) -> None:
        self._options = options
        self._stamp = stamp
        self._labels: dict[str, str] = {}
        self._handed_over = 0  # calls of the client's tools
        # A token costs no more than escaping its text: everything around it is fixed for the run.
        self._before_choices = (
            f'data: {{"id": {quoted(stamp.run_id)}, "object": "{CHUNK}", "created": {stamp.created}, '
            f'"model": {quoted(stamp.model)}, "choices": ['
        )
        self._before_delta = f'{self._before_choices}{{"index": 0, "delta": '
        self._before_content = f'{self._before_delta}{{"content": '
        tail = ', "usage": null' if options.include_usage else ""
        self._after = f'}}, "finish_reason": null}}]{tail}}}\n\n'

    def opening(self) -> bytes:
        """The role chunk: it goes out before the agent exists."""
        return f'{self._before_delta}{{"role": "assistant"{self._after}'.encode("ascii")

    def render(self, changes: Iterable[Change]) -> bytes:
        """All frames of some changes, in one piece for one write."""
        return b"".join(map(self._frame, changes))

    def _frame(self, change: Change) -> bytes:
        if type(change) is TextAdded:  # most of them are
            return f"{self._before_content}{quoted(change.text)}{self._after}".encode("ascii")
        render = self._RENDERERS.get(type(change))
        return b"" if render is None else render(self, change)

    def _reason(self, change: ReasoningAdded) -> bytes:
        delta = f'{{"reasoning_content": {quoted(change.text)}'
        return f"{self._before_delta}{delta}{self._after}".encode("ascii")

    def _start(self, change: CallStarted) -> bytes:
        return self._aside(PROGRESS, self._running(change))

    def _stop(self, change: CallEnded) -> bytes:
        return self._aside(PROGRESS, self._over(change))

    def _ask(self, change: ApprovalRequested) -> bytes:
        return self._aside(APPROVAL_REQUEST, self._question(change))

    def _answer(self, change: ApprovalResolved) -> bytes:
        return self._aside(APPROVAL_RESPONDED, self._decided(change))

    def _end(self, change: Ended) -> bytes:
        usage = encode(usage_block(change.outcome.usage))
        if not self._options.include_usage:
            return self._finish(change.outcome, usage) + DONE
        apart = f'{self._before_choices}], "usage": {usage}}}\n\n'.encode("ascii")
        return self._finish(change.outcome, "null") + apart + DONE

    def _finish(self, outcome: Outcome, usage: str) -> bytes:
        reason = finish_reason(outcome, self._handed_over > 0)
        more = "" if outcome.status is Status.COMPLETED else f", {encode(trouble_blocks(outcome))[1:-1]}"
        end = f'{{}}, "finish_reason": "{reason}"}}], "usage": {usage}{more}}}\n\n'
        return f"{self._before_delta}{end}".encode("ascii")

    def _hand_over(self, change: ClientToolCalled) -> bytes:
        call = {"index": self._handed_over, **client_call(change)}
        self._handed_over += 1
        return data_frame(encode(self._chunk({"tool_calls": [call]})))

    def _aside(self, name: str, fields: Mapping[str, Any]) -> bytes:
        return named_frame(name, encode({**self._chunk({}), **fields}))

    def _question(self, change: ApprovalRequested) -> dict[str, Any]:
        waiting = f"Waiting for an approval: {shorten(change.command, 200)}"
        # Apart from the chunk's own fields: both have choices.
        return {"approval": request_fields(change), **self._status_line(waiting, done=False)}

    def _decided(self, change: ApprovalResolved) -> dict[str, Any]:
        return {
            "approval": response_fields(change),
            **self._status_line(f"Approval: {change.choice}", done=True),
        }

    def _running(self, change: CallStarted) -> dict[str, Any]:
        label = shorten(tool_display.label(change.name, change.args), 200)
        args = shorten_json(change.args, SHOWN_CHARACTERS)
        self._labels[change.call_id] = label
        return {
            "tool": change.name,
            "name": change.name,
            "emoji": tool_display.emoji(change.name),
            "label": label,
            "toolCallId": change.call_id,
            "status": "running",
            "args": args,
            "input": args,
            **self._status_line(f"{tool_display.emoji(change.name)} {change.name}: {label}", done=False),
        }

    def _over(self, change: CallEnded) -> dict[str, Any]:
        label = self._labels.pop(change.call_id)
        result = shorten(change.result, SHOWN_CHARACTERS)
        return {
            "tool": change.name,
            "name": change.name,
            "toolCallId": change.call_id,
            "status": str(change.state),
            "result": result,
            "output": result,
            "duration": round(change.duration, 3),
            "isError": change.is_error,
            **self._status_line(f"{tool_display.emoji(change.name)} {change.name}: {label}", done=True),
        }

    def _status_line(self, description: str, done: bool) -> dict[str, Any]:
        if not self._options.status_line:
            return {}
        return {"event": {"type": "status", "data": {"description": description, "done": done}}}

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

    # Live output of a call is not among them: one running and one ending event is all that chat shows.
    _RENDERERS: ClassVar[Mapping[type[Change], Callable[[ChatStream, Any], bytes]]] = {
        ReasoningAdded: _reason,
        CallStarted: _start,
        CallEnded: _stop,
        ClientToolCalled: _hand_over,
        ApprovalRequested: _ask,
        ApprovalResolved: _answer,
        Ended: _end,
    }


_NO_END = Outcome.from_cancellation(Reason.SERVER_ERROR)  # holds if the end never comes

# A repeated POST would run the agent, and its tools, a second time.
NO_RETRY = {"x-should-retry": "false"}


@frozen
class BatchReply:
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
            case ClientToolCalled():
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

    def reply(self, answer: str) -> BatchReply:
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
        return BatchReply(self._body(answer), outcome_headers(outcome))

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
