"""Responses, streamed: changes in, SSE frames out.

Only standard events, because the JS helper throws on every other. The order on the wire: ``created`` and ``in_progress``
at once; items as they come; one terminal event; ``[DONE]``. All frames are a pure function of the header and the changes,
so a stream can be picked up after any of its events by rendering it again and leaving out what the client has.

A run that was stopped on request ends with ``response.incomplete`` whose response says ``cancelled``. There is no event
type for it, and ending without a terminal event is worse: the JS helper then takes the last snapshot for the final
response, and that one says ``in_progress`` for ever. With ``response.incomplete`` the JS helper returns the cancelled
response, the Python one goes through its loop as after any unfinished run, and front ends keep the text they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hermes_trio.core.changes import ApprovalRequested, ApprovalResolved, Change, Ended, TextAdded
from hermes_trio.core.dialects.chat import BatchReply, flags, outcome_headers
from hermes_trio.core.dialects.responses_items import (
    CallSlot,
    ItemAdded,
    ItemDelta,
    ItemDone,
    MessageSlot,
    Output,
    Prose,
    ReasoningSlot,
    ResultForm,
    Slot,
    Step,
    output_items,
    summary_part,
    text_part,
)
from hermes_trio.core.dialects.wire import DONE, encode, named_frame, pending_block
from hermes_trio.core.messages import Item, Usage
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.records import RunHeader

FROM_THE_START = -1  # the number of the last event that a new reader has

_TERMINAL = {
    Status.COMPLETED: "response.completed",
    Status.INCOMPLETE: "response.incomplete",
    Status.CANCELLED: "response.incomplete",
    Status.FAILED: "response.failed",
}

Event = tuple[str, Mapping[str, Any]]


class ResponsesStream:
    """Renders one run. Frames up to the number ``after`` are counted, not written: the client has them."""

    def __init__(self, header: RunHeader, after: int = FROM_THE_START) -> None:
        self._header = header
        self._after = after
        self._number = 0  # of the next event
        self._output = Output(header.run_id)
        self._around: dict[Slot, tuple[str, str]] = {}  # what stands around a delta, for each open text

    def opening(self) -> bytes:
        """The first two events: they go out before the agent exists."""
        response = response_body(self._header, ())
        return b"".join(
            self._frame(name, {"response": response}) for name in ("response.created", "response.in_progress")
        )

    def render(self, changes: Iterable[Change]) -> bytes:
        """All frames of some changes, in one piece for one write."""
        frames: list[bytes] = []
        for change in changes:
            if type(change) is TextAdded and (slot := self._output.grow(change)) is not None:
                frames.append(self._delta(slot, change.text))
            else:
                frames += self._frames(change)
        return b"".join(frames)

    def _frames(self, change: Change) -> Iterator[bytes]:
        for step in self._output.take(change):
            if type(step) is ItemDelta:
                yield self._delta(step.slot, step.text)
            else:
                yield from self._edge(step)
        if type(change) is Ended:
            yield self._end(change)
            yield DONE

    def _delta(self, slot: Prose, text: str) -> bytes:
        # A token costs no more than escaping its text: everything around it is fixed for the item.
        before, after = self._around[slot]
        number = self._number
        self._number += 1
        if number <= self._after:
            return b""
        return f"{before}{encode(text)}{after}{number}}}\n\n".encode("ascii")

    def _edge(self, step: Step) -> Iterator[bytes]:
        if type(step) is ItemAdded:
            events = _opening_events(step.slot)
            if isinstance(step.slot, MessageSlot | ReasoningSlot):
                self._around[step.slot] = _around_delta(step.slot)
        else:
            assert type(step) is ItemDone
            events = _closing_events(step.slot)
            self._around.pop(step.slot, None)
        for name, fields in events:
            yield self._frame(name, fields)

    def _end(self, change: Ended) -> bytes:
        output = self._output.items(ResultForm.PARTS)
        response = response_body(self._header, output, change.outcome, change.at)
        if change.outcome.reason is Reason.PROCESS_DIED:
            # The client may have been told more than a dead process had logged. For it too the end comes next.
            self._number = max(self._number, self._after + 1)
        return self._frame(_TERMINAL[change.outcome.status], {"response": response})

    def _frame(self, name: str, fields: Mapping[str, Any]) -> bytes:
        number = self._number
        self._number += 1
        if number <= self._after:
            return b""
        return named_frame(name, encode({"type": name, **fields, "sequence_number": number}))


def frames_after(header: RunHeader, changes: Iterable[Change], starting_after: int = FROM_THE_START) -> bytes:
    """The stream of a whole log from the event after ``starting_after`` on; ``[DONE]`` is last, if the run ended."""
    stream = ResponsesStream(header, starting_after)
    return stream.opening() + stream.render(changes)


def _place(slot: Slot) -> dict[str, Any]:
    return {"item_id": slot.item_id, "output_index": slot.index}


def _opening_events(slot: Slot) -> Iterator[Event]:
    yield "response.output_item.added", {"output_index": slot.index, "item": slot.opened()}
    match slot:
        case MessageSlot():
            part = {**_place(slot), "content_index": 0, "part": text_part("")}
            yield "response.content_part.added", part
        case ReasoningSlot():
            part = {**_place(slot), "summary_index": 0, "part": summary_part("")}
            yield "response.reasoning_summary_part.added", part
        case CallSlot():
            yield from _argument_events(slot)
        case _:
            pass  # a result has no parts


def _argument_events(slot: CallSlot) -> Iterator[Event]:
    """The arguments are whole when a call starts, so they are one delta."""
    yield "response.function_call_arguments.delta", {**_place(slot), "delta": slot.arguments}
    done = {**_place(slot), "name": slot.name, "arguments": slot.arguments}
    yield "response.function_call_arguments.done", done


def _closing_events(slot: Slot) -> Iterator[Event]:
    match slot:
        case MessageSlot():
            place = {**_place(slot), "content_index": 0}
            yield "response.output_text.done", {**place, "text": slot.text, "logprobs": []}
            yield "response.content_part.done", {**place, "part": text_part(slot.text)}
        case ReasoningSlot():
            place = {**_place(slot), "summary_index": 0}
            yield "response.reasoning_summary_text.done", {**place, "text": slot.text}
            yield "response.reasoning_summary_part.done", {**place, "part": summary_part(slot.text)}
        case _:
            pass
    yield "response.output_item.done", {"output_index": slot.index, "item": slot.shown(ResultForm.PARTS)}


def _around_delta(slot: Prose) -> tuple[str, str]:
    """A delta event of this item: the bytes before its text and those between its text and its number."""
    is_message = isinstance(slot, MessageSlot)
    name = "response.output_text.delta" if is_message else "response.reasoning_summary_text.delta"
    index = "content_index" if is_message else "summary_index"
    head = encode({"type": name, **_place(slot), index: 0})[:-1]
    logprobs = '"logprobs": [], ' if is_message else ""
    return f'event: {name}\ndata: {head}, "delta": ', f', {logprobs}"sequence_number": '


IN_PROGRESS = "in_progress"

# Fields of the request that the answer repeats, with what holds when a client does not say. Strict clients want numbers
# and strings here, not null.
ECHO: Mapping[str, Any] = MappingProxyType(
    {
        "frequency_penalty": 0.0,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": None,
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
    }
)


def response_object(
    header: RunHeader, items: Sequence[Item], outcome: Outcome | None = None, ended_after: float = 0.0
) -> dict[str, Any]:
    """A run as ``retrieve`` and batch replies show it, from its items. No outcome: it is in progress."""
    output = output_items(header.run_id, items, outcome, ResultForm.TEXT)
    return response_body(header, output, outcome, ended_after)


def response_body(
    header: RunHeader,
    output: Sequence[Any],
    outcome: Outcome | None = None,
    ended_after: float = 0.0,
    questions: tuple[ApprovalRequested, ...] = (),
) -> dict[str, Any]:
    """The object around an output that is already in the form of the wire."""
    return {
        "id": header.run_id,
        "object": "response",
        "created_at": header.stamp.created,
        "status": IN_PROGRESS if outcome is None else str(outcome.status),
        "background": header.background,
        "completed_at": _completed_at(header, outcome, ended_after),
        "error": _error(outcome),
        "incomplete_details": _incomplete_details(outcome),
        "model": header.stamp.model,
        "output": list(output),
        "conversation": {"id": header.conversation} if header.conversation else None,
        **_echo(header),
        "usage": None if outcome is None else usage_block(outcome.usage),
        **(_waiting(questions) if outcome is None else _hermes(header, outcome, ended_after)),
    }


def usage_block(usage: Usage) -> dict[str, Any]:
    """Token counts under their Responses names."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def _echo(header: RunHeader) -> dict[str, Any]:
    """What the request said; instructions that it did not give are those the run works with."""
    given = {name: header.request[name] for name in ECHO if header.request.get(name) is not None}
    return {**ECHO, "instructions": header.instructions or None, **given}


def _completed_at(header: RunHeader, outcome: Outcome | None, ended_after: float) -> int | None:
    if outcome is None or outcome.status is not Status.COMPLETED:
        return None
    return int(header.stamp.created_at + ended_after)


def _error(outcome: Outcome | None) -> dict[str, Any] | None:
    """The codes are a closed list in the SDKs; this is the one that fits whatever happened to an agent."""
    if outcome is None or outcome.status is not Status.FAILED:
        return None
    return {"code": "server_error", "message": outcome.failure.message or "The agent failed."}


def _incomplete_details(outcome: Outcome | None) -> dict[str, Any] | None:
    """Reasons are a closed list too: only truncation has one, the others stand in the ``hermes`` field."""
    if outcome is None or outcome.reason is not Reason.MAX_OUTPUT_TOKENS:
        return None
    return {"reason": "max_output_tokens"}


def _waiting(questions: tuple[ApprovalRequested, ...]) -> dict[str, Any]:
    """Why a response that is in progress does not go on, if somebody has to be asked."""
    return {"hermes": pending_block(questions)} if questions else {}


def _hermes(header: RunHeader, outcome: Outcome, ended_after: float) -> dict[str, Any]:
    """What the standard fields cannot say; nothing for a plain completion in its own session."""
    if outcome.status is Status.COMPLETED and not outcome.session_id:
        return {}
    return {
        "hermes": {
            **flags(outcome),
            "error": outcome.failure.message or None,
            "session_id": outcome.session_id or header.session_id,
            "duration": round(ended_after, 3),
        }
    }


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
        return Outcome.from_cancellation(Reason.SERVER_ERROR) if self._end is None else self._end.outcome

    def snapshot(self) -> dict[str, Any]:
        """The response as it stands, in progress until the end was taken."""
        output = self._output.items(ResultForm.TEXT)
        if self._end is None:
            return response_body(self._header, output, questions=tuple(self._questions.values()))
        return response_body(self._header, output, self._end.outcome, self._end.at)

    def reply(self) -> BatchReply:
        """The answer to a request that waited for it.

        It is a 200 whatever became of the run, as with OpenAI: the response's own status tells.
        """
        end = self._end or Ended(self.outcome)
        self._output.take_all([end])
        output = self._output.items(ResultForm.TEXT)
        return BatchReply(
            response_body(self._header, output, end.outcome, end.at), outcome_headers(end.outcome)
        )
