"""Responses: changes rendered as a stream of events, or collected into one response object.

Streams consist of standard events only, because the helper of the JavaScript SDK throws on any
other. Their order: ``created`` and ``in_progress`` at once; items as they come; one terminal event;
``[DONE]``. All frames are a pure function of the header and the changes, so a stream is resumed
after any event by rendering it again and skipping what the client has.

A run that was stopped on request ends with ``response.incomplete`` whose response has the status
``cancelled``. The standard has no event for it, and ending without a terminal event is worse: the
JavaScript helper would take the last snapshot, which says ``in_progress``, for the final response.
With ``response.incomplete`` that helper returns the cancelled response, the Python one finishes its
loop as after any incomplete run, and front ends keep the text they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hermes_trio.core.changes import (
    ApprovalRequested,
    ApprovalResolved,
    Change,
    Ended,
    NumbersSkipped,
    TextAdded,
)
from hermes_trio.core.dialects.chat import BatchReply, outcome_flags, outcome_headers
from hermes_trio.core.dialects.responses_items import (
    CallSlot,
    ItemAdded,
    ItemDelta,
    ItemStatus,
    McpCallSlot,
    MessageSlot,
    Output,
    Presentation,
    ReasoningSlot,
    ResultForm,
    ServerCallSlot,
    Slot,
    TextSlot,
    ToolItems,
    output_item_ids,
    output_items,
    summary_part,
    text_part,
)
from hermes_trio.core.dialects.wire import (
    DONE,
    STATUS_LINE,
    approval_status,
    encode,
    named_frame,
    pending_fields,
)
from hermes_trio.core.messages import Item, Usage
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.records import EndedRun, RunHeader

FROM_THE_START = -1  # the event number a new client resumes after

_TERMINAL = {
    Status.COMPLETED: "response.completed",
    Status.INCOMPLETE: "response.incomplete",
    Status.CANCELLED: "response.incomplete",
    Status.FAILED: "response.failed",
}

_Event = tuple[str, Mapping[str, Any]]  # name and fields

KIND = "responses"
"""The kind of a run that the Responses API started."""

TOOL_ITEMS = "tool_items"
"""Where the request in a run's header says how tool calls appear; absent.

As ``function_call`` items.
"""


APPROVAL_ITEMS = "approval_items"
"""Where the request in a run's header says that approval requests are items; absent: they are not."""


def presentation(header: RunHeader) -> Presentation:
    """Return the form of a response, which is the same for every client that reads it."""
    return Presentation(
        ToolItems(header.request.get(TOOL_ITEMS, ToolItems.FUNCTION_CALL)),
        bool(header.request.get(APPROVAL_ITEMS)),
    )


IN_PROGRESS = "in_progress"

# Fields of the request that a response repeats, with their defaults. Strict clients want numbers
# and strings, not null.
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


# -- the response object --


def response_object(
    header: RunHeader,
    items: Sequence[Item],
    outcome: Outcome | None = None,
    ended_after: float = 0.0,
) -> dict[str, Any]:
    """Return a run as ``retrieve`` shows it, from its items.

    Without an outcome it is in progress.
    """
    output = output_items(header.run_id, items, outcome, ResultForm.TEXT, presentation(header))
    return response_body(header, output, outcome, ended_after)


def response_items(ended: EndedRun) -> tuple[Mapping[str, Any], ...]:
    """Return every item of a response that clients may refer to by its id: its input, then its output.

    Empty for a run of another API, and for one that clients asked not to store.
    """
    header = ended.header
    if header.kind != KIND or not header.is_stored:
        return ()
    output = output_items(
        header.run_id, ended.items, ended.outcome, presentation=presentation(header)
    )
    return (*header.input_items, *output)


def response_item_ids(ended: EndedRun) -> tuple[str, ...]:
    """Return the ids of ``response_items``, in any order, without building the items."""
    header = ended.header
    if header.kind != KIND or not header.is_stored:
        return ()
    given = (item["id"] for item in header.input_items)
    return (*given, *output_item_ids(header.run_id, ended.items, presentation(header)))


def response_body(
    header: RunHeader,
    output: Sequence[Any],
    outcome: Outcome | None = None,
    ended_after: float = 0.0,
    open_approvals: tuple[ApprovalRequested, ...] = (),
) -> dict[str, Any]:
    """Return the response object around an output that is already in the form of the wire."""
    return {
        "id": header.run_id,
        "object": "response",
        "created_at": header.stamp.created,
        "status": IN_PROGRESS if outcome is None else str(outcome.status),
        "background": header.background,
        **_end_fields(header, outcome, ended_after),
        "model": header.stamp.model,
        "output": list(output),
        "conversation": {"id": header.conversation} if header.conversation else None,
        **_echo(header),
        "usage": None if outcome is None else usage_block(outcome.usage),
        **_hermes_block(header, outcome, ended_after, open_approvals),
    }


def usage_block(usage: Usage) -> dict[str, Any]:
    """Return token counts under their Responses names."""
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
    """Return the repeated fields of the request.

    Instructions it did not give are those the run uses.
    """
    given = {name: header.request[name] for name in ECHO if header.request.get(name) is not None}
    return {**ECHO, "instructions": header.instructions or None, **given}


def _end_fields(header: RunHeader, outcome: Outcome | None, ended_after: float) -> dict[str, Any]:
    """Return the fields about the end of a run.

    Error codes and reasons are closed lists in the SDKs.
    """
    completed_at = error = details = None
    if outcome is not None:
        if outcome.status is Status.COMPLETED:
            completed_at = int(header.stamp.created_at + ended_after)
        elif outcome.status is Status.FAILED:
            error = {
                "code": "server_error",
                "type": "server_error",  # the AI SDK rejects a response without it
                "message": outcome.failure.message or "The agent failed.",
            }
        if outcome.reason is Reason.MAX_OUTPUT_TOKENS:
            details = {"reason": "max_output_tokens"}
    return {"completed_at": completed_at, "error": error, "incomplete_details": details}


def _hermes_block(
    header: RunHeader,
    outcome: Outcome | None,
    ended_after: float,
    open_approvals: tuple[ApprovalRequested, ...],
) -> dict[str, Any]:
    """Return the ``hermes`` field: what the standard fields cannot express.

    A run in progress has it if it waits for an approval, an ended one unless it completed in its
    own session.
    """
    if outcome is None:
        return {"hermes": pending_fields(open_approvals)} if open_approvals else {}
    if outcome.status is Status.COMPLETED and not outcome.session_id:
        return {}
    return {
        "hermes": {
            **outcome_flags(outcome),
            "error": outcome.failure.message or None,
            "session_id": outcome.session_id or header.session_id,
            "duration": round(ended_after, 3),
        }
    }


class _OpenRequests:
    """The approval requests of a run that are not answered yet, oldest first."""

    def __init__(self) -> None:
        self._open: dict[str, ApprovalRequested] = {}

    @property
    def values(self) -> tuple[ApprovalRequested, ...]:
        return tuple(self._open.values())

    def take(self, change: ApprovalRequested | ApprovalResolved) -> None:
        if isinstance(change, ApprovalRequested):
            self._open[change.approval_id] = change
        else:
            del self._open[change.approval_id]


# -- streams --


class ResponsesStream:
    """Renders one run.

    Events up to number ``after`` are counted but not written: the client has them.
    """

    def __init__(self, header: RunHeader, after: int = FROM_THE_START) -> None:
        self._header = header
        self._after = after
        self._number = 0  # of the next event
        self._output = Output(header.run_id, presentation(header))
        self._has_status_line = bool(header.request.get(STATUS_LINE))
        self._open_approvals = _OpenRequests()
        self._around: dict[
            Slot, tuple[str, str]
        ] = {}  # before and after the text of a delta, per open item

    def opening(self) -> bytes:
        """Return the first two events. They are sent before the agent starts."""
        response = response_body(self._header, ())
        return b"".join(
            self._frame(name, {"response": response})
            for name in ("response.created", "response.in_progress")
        )

    def render(self, changes: Iterable[Change]) -> bytes:
        """Return all frames of some changes, joined for one write."""
        frames: list[bytes] = []
        for change in changes:
            if type(change) is TextAdded and (slot := self._output.append(change)) is not None:
                frames.append(self._delta(slot, change.text))
            else:
                frames += self._frames(change)
        return b"".join(frames)

    def _frames(self, change: Change) -> Iterator[bytes]:
        yield from self._item_frames(change)
        match change:
            case ApprovalRequested() | ApprovalResolved():
                yield from self._approval(change)
            case NumbersSkipped(count):
                self._number += count
            case Ended():
                yield self._end(change)
                yield DONE
            case _:
                pass  # all about items

    def _item_frames(self, change: Change) -> Iterator[bytes]:
        for step in self._output.take(change):
            slot = step.slot
            match step:
                case ItemDelta(slot=text_slot, text=text):
                    yield self._delta(text_slot, text)
                    continue
                case ItemAdded():
                    events = _opening_events(slot)
                    if isinstance(slot, MessageSlot | ReasoningSlot):
                        self._around[slot] = _around_delta(slot)
                case _:
                    events = _closing_events(slot)
                    self._around.pop(slot, None)
            for name, fields in events:
                yield self._frame(name, fields)

    def _approval(self, change: ApprovalRequested | ApprovalResolved) -> Iterator[bytes]:
        """Show an approval request, or that it was answered, to a client that shows status events.

        The standard has no event for it, so one that changes nothing carries it.
        """
        self._open_approvals.take(change)
        if self._has_status_line:
            output = self._output.items(ResultForm.PARTS)
            response = response_body(
                self._header, output, open_approvals=self._open_approvals.values
            )
            fields = {"response": response, **approval_status(change)}
            yield self._frame("response.in_progress", fields)

    def _delta(self, slot: TextSlot, text: str) -> bytes:
        # Everything around a token is fixed for its item, so that a token costs little more than
        # escaping its text.
        before, after = self._around[slot]
        number = self._number
        self._number += 1
        if number <= self._after:
            return b""
        return f"{before}{encode(text)}{after}{number}}}\n\n".encode("ascii")

    def _end(self, change: Ended) -> bytes:
        output = self._output.items(ResultForm.PARTS)
        response = response_body(self._header, output, change.outcome, change.at)
        return self._frame(_TERMINAL[change.outcome.status], {"response": response})

    def _frame(self, name: str, fields: Mapping[str, Any]) -> bytes:
        number = self._number
        self._number += 1
        if number <= self._after:
            return b""
        return named_frame(name, encode({"type": name, **fields, "sequence_number": number}))


def frames_after(
    header: RunHeader, changes: Iterable[Change], starting_after: int = FROM_THE_START
) -> bytes:
    """Render a whole log from the event after ``starting_after`` on."""
    stream = ResponsesStream(header, starting_after)
    return stream.opening() + stream.render(changes)


def _position(slot: Slot) -> dict[str, Any]:
    return {"item_id": slot.item_id, "output_index": slot.index}


def _opening_events(slot: Slot) -> Iterator[_Event]:
    yield "response.output_item.added", {"output_index": slot.index, "item": slot.opened()}
    match slot:
        case MessageSlot():
            part = {**_position(slot), "content_index": 0, "part": text_part("")}
            yield "response.content_part.added", part
        case ReasoningSlot():
            part = {**_position(slot), "summary_index": 0, "part": summary_part("")}
            yield "response.reasoning_summary_part.added", part
        case CallSlot():
            yield from _argument_events("function_call", slot, {"name": slot.name})
        case McpCallSlot():
            yield "response.mcp_call.in_progress", _position(slot)
            yield from _argument_events("mcp_call", slot, {})
        case _:
            pass  # a result has no further events


def _argument_events(
    kind: str, slot: ServerCallSlot, fields: Mapping[str, Any]
) -> Iterator[_Event]:
    """Return the events of a call's arguments.

    One delta, because they are complete when a call starts.
    """
    yield f"response.{kind}_arguments.delta", {**_position(slot), "delta": slot.arguments}
    yield (
        f"response.{kind}_arguments.done",
        {**_position(slot), **fields, "arguments": slot.arguments},
    )


def _closing_events(slot: Slot) -> Iterator[_Event]:
    match slot:
        case MessageSlot():
            position = {**_position(slot), "content_index": 0}
            yield "response.output_text.done", {**position, "text": slot.text, "logprobs": []}
            yield "response.content_part.done", {**position, "part": text_part(slot.text)}
        case ReasoningSlot():
            position = {**_position(slot), "summary_index": 0}
            yield "response.reasoning_summary_text.done", {**position, "text": slot.text}
            yield (
                "response.reasoning_summary_part.done",
                {**position, "part": summary_part(slot.text)},
            )
        case McpCallSlot(status=status):
            ending = "completed" if status is ItemStatus.COMPLETED else "failed"
            yield f"response.mcp_call.{ending}", _position(slot)
        case _:
            pass
    yield (
        "response.output_item.done",
        {"output_index": slot.index, "item": slot.shown(ResultForm.PARTS)},
    )


def _around_delta(slot: TextSlot) -> tuple[str, str]:
    """Return what precedes the text in a delta event of this item, and what stands between text and number."""
    is_message = isinstance(slot, MessageSlot)
    name = "response.output_text.delta" if is_message else "response.reasoning_summary_text.delta"
    index = "content_index" if is_message else "summary_index"
    head = encode({"type": name, **_position(slot), index: 0})[:-1]
    logprobs = '"logprobs": [], ' if is_message else ""
    return f'event: {name}\ndata: {head}, "delta": ', f', {logprobs}"sequence_number": '


# -- batch replies --


class ResponsesCollector:
    """Collects the changes of one run into a response object."""

    def __init__(self, header: RunHeader) -> None:
        self._header = header
        self._output = Output(header.run_id, presentation(header))
        self._end: Ended | None = None
        self._open_approvals = _OpenRequests()

    def take(self, changes: Iterable[Change]) -> None:
        """Add some changes."""
        for change in changes:
            self._output.take_all([change])
            match change:
                case Ended():
                    self._end = change
                case ApprovalRequested() | ApprovalResolved():
                    self._open_approvals.take(change)
                case _:
                    pass

    @property
    def outcome(self) -> Outcome:
        """How the run ended; a server error if its end was not added."""
        return (
            Outcome.from_cancellation(Reason.SERVER_ERROR)
            if self._end is None
            else self._end.outcome
        )

    def snapshot(self) -> dict[str, Any]:
        """Return the current response, in progress until the end is added."""
        output = self._output.items(ResultForm.TEXT)
        if self._end is None:
            return response_body(self._header, output, open_approvals=self._open_approvals.values)
        return response_body(self._header, output, self._end.outcome, self._end.at)

    def reply(self) -> BatchReply:
        """Return the reply to a request that waited for the run.

        It is a 200 however the run ended, as with OpenAI: the status is part of the response.
        """
        end = self._end or Ended(self.outcome)
        self._output.take_all([end])
        output = self._output.items(ResultForm.TEXT)
        return BatchReply(
            response_body(self._header, output, end.outcome, end.at), outcome_headers(end.outcome)
        )
