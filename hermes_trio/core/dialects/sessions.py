"""Session chat, streamed: changes in, SSE frames out.

A frame has ``event:``, ``id:`` and ``data:`` lines. The id is also the field ``seq``; it counts from 1 without a gap, and a
browser that lost its connection sends the last one back. JSON has all alphabets as they are.

The order on the wire: ``run.started`` and ``message.started`` at once; then one event for every change; then
``assistant.completed`` and ``run.completed``, or ``error`` where the run failed; ``done``. Which of the two, the same rule
decides as for runs. All frames are a pure function of the header and the changes, so a stream can be picked up after
any of its events by rendering it again and leaving out what the client has. A client that names an event which the log
does not have gets the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

from attrs import asdict, evolve

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
    ToolOutputAdded,
)
from hermes_trio.core.dialects.chat import ChatCollector
from hermes_trio.core.dialects.responses import usage_block
from hermes_trio.core.dialects.runs import (
    PREVIEW_CHARACTERS,
    SHOWN_CHARACTERS,
    STARTED,
    Times,
    answer,
    end_status,
    kind_of,
)
from hermes_trio.core.dialects.wire import encode_raw, full_frame, request_fields, response_fields
from hermes_trio.core.messages import CallItem, Content, Item, Message, MessageItem, ToolCall, transcript
from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.core.records import RunHeader
from hermes_trio.core.replay import ReplayedTurn
from hermes_trio.core.sessions import Session, StoredMessage
from hermes_trio.core.shorten import shorten, shorten_json
from hermes_trio.core.state import RunState

FROM_THE_START = 0  # the number of the last event that a new reader has
THINKING = "_thinking"  # the name under which clients of today's server get reasoning
QUESTION_CHARACTERS = 16_000  # of the client's own message; it may hold images

Fields = Mapping[str, Any]


class SessionStream:
    """Renders one run. Frames up to the number ``after`` are counted, not written: the client has them."""

    def __init__(self, header: RunHeader, after: int = FROM_THE_START) -> None:
        self._header = header
        self._session_id = header.session_id
        self._message_id = message_id(header)
        self._after = after
        self._number = 1  # of the next event
        self._times = Times(header)
        self._rebuilt = ReplayedTurn()
        self._running: dict[str, CallStarted] = {}

    def opening(self) -> bytes:
        """The first two events: they go out before the agent exists."""
        begun = self._frame(STARTED, partial(_question, self._header))
        return begun + self._frame("message.started", self._message)

    def _message(self) -> Fields:
        return {"message": {"id": self._message_id, "role": "assistant"}}

    def render(self, changes: Iterable[Change]) -> bytes:
        """All frames of some changes, in one piece for one write."""
        return b"".join(map(self._render, changes))

    def _render(self, change: Change) -> bytes:
        self._times.take(change)
        self._rebuilt.take(change)
        return self._HANDLERS[type(change)](self, change)

    def _text(self, change: TextAdded) -> bytes:
        return self._part("assistant.delta", lambda: {"delta": change.text})

    def _reasoning(self, change: ReasoningAdded) -> bytes:
        return self._part("tool.progress", lambda: {"tool_name": THINKING, "delta": change.text})

    def _call_started(self, change: CallStarted) -> bytes:
        self._running[change.call_id] = change
        return self._part("tool.started", partial(_call, change))

    def _call_said(self, change: ToolOutputAdded) -> bytes:
        return self._part("tool.output", partial(_said, self._running[change.call_id], change))

    def _call_ended(self, change: CallEnded) -> bytes:
        return self._part("tool.completed", partial(_over, self._running.pop(change.call_id), change))

    def _client_called(self, change: ClientToolCalled) -> bytes:
        return self._part(kind_of(change), partial(_handed_over, change))

    def _asked(self, change: ApprovalRequested) -> bytes:
        return self._part(kind_of(change), partial(request_fields, change))

    def _answered(self, change: ApprovalResolved) -> bytes:
        return self._part(kind_of(change), partial(response_fields, change))

    def _end(self, change: Ended) -> bytes:
        outcome = change.outcome
        self._session_id = outcome.session_id or self._session_id
        frames = self._failed(outcome) if end_status(outcome) is RunState.FAILED else self._ended(outcome)
        last = self._number + len(frames)
        if self._after > last:
            # The client has events that died with a process before they were logged, but not these.
            self._after = FROM_THE_START
        done = partial(dict[str, Any], status=str(end_status(outcome)))
        return b"".join(self._part(*frame) for frame in frames) + self._frame("done", done)

    _HANDLERS: ClassVar[Mapping[type[Change], Callable[[SessionStream, Any], bytes]]] = {
        TextAdded: _text,
        ReasoningAdded: _reasoning,
        CallStarted: _call_started,
        ToolOutputAdded: _call_said,
        CallEnded: _call_ended,
        ClientToolCalled: _client_called,
        ApprovalRequested: _asked,
        ApprovalResolved: _answered,
        Ended: _end,
    }

    def _failed(self, outcome: Outcome) -> list[tuple[str, Callable[[], Fields]]]:
        message = outcome.failure.message or "The run failed."
        return [("error", lambda: {"message": message, **end_flags(outcome)})]

    def _ended(self, outcome: Outcome) -> list[tuple[str, Callable[[], Fields]]]:
        self._rebuilt.turn.cancel(outcome.reason)  # calls that were cut short have their results only now
        items = self._rebuilt.turn.items
        return [
            ("assistant.completed", lambda: {"content": _answer(items, outcome), **end_flags(outcome)}),
            ("run.completed", lambda: {**_result(items, outcome), **end_flags(outcome)}),
        ]

    def _part(self, kind: str, fields: Callable[[], Fields]) -> bytes:
        """An event about the message that the run writes."""
        return self._frame(kind, lambda: {"message_id": self._message_id, **fields()})

    def _frame(self, kind: str, fields: Callable[[], Fields]) -> bytes:
        number = self._number
        self._number += 1
        if number <= self._after:
            return b""
        head = {"session_id": self._session_id, "run_id": self._header.run_id, "seq": number}
        return full_frame(kind, number, encode_raw({**head, "ts": self._times.latest, **fields()}))


def frames_after(header: RunHeader, changes: Iterable[Change], after: int = FROM_THE_START) -> bytes:
    """The stream of a whole log from the event after ``after`` on."""
    stream = SessionStream(header, after)
    return stream.opening() + stream.render(changes)


def message_id(header: RunHeader) -> str:
    """The id of the one message that a run writes."""
    return f"msg_{header.run_id.removeprefix('run_')}"


def _question(header: RunHeader) -> Fields:
    content = header.messages[-1].content if header.messages else ""
    return {"user_message": {"role": "user", "content": _shown(content)}}


def _shown(content: Content) -> Any:
    if isinstance(content, str):
        return shorten(content, QUESTION_CHARACTERS)
    return shorten_json([dict(part) for part in content], QUESTION_CHARACTERS)


def _call(change: CallStarted) -> Fields:
    return {
        "tool_name": change.name,
        "toolCallId": change.call_id,
        "preview": tool_display.preview(change.name, change.args, PREVIEW_CHARACTERS) or None,
        "args": shorten_json(change.args, SHOWN_CHARACTERS),
    }


def _said(start: CallStarted, change: ToolOutputAdded) -> Fields:
    return {
        "tool_name": start.name,
        "toolCallId": change.call_id,
        "delta": shorten(change.text, SHOWN_CHARACTERS),
    }


def _over(start: CallStarted, change: CallEnded) -> Fields:
    return {
        **_call(start),
        "result": shorten(change.result, SHOWN_CHARACTERS),
        "duration": round(change.duration, 3),
        "error": change.is_error,
        "status": str(change.state),
    }


def _handed_over(change: ClientToolCalled) -> Fields:
    return {
        "tool_name": change.name,
        "toolCallId": change.call_id,
        "arguments": shorten(change.arguments, SHOWN_CHARACTERS),
    }


def _answer(items: Iterable[Item], outcome: Outcome) -> str:
    return answer([item.text for item in items if isinstance(item, MessageItem)], outcome)


def _result(items: Iterable[Item], outcome: Outcome) -> Fields:
    """What the agent did, as messages. What tools took and gave is shortened here; the transcript has it whole."""
    said = transcript(tuple(map(_shortened, items)))
    return {"messages": [message_fields(message) for message in said], "usage": usage_block(outcome.usage)}


def _shortened(item: Item) -> Item:
    if not isinstance(item, CallItem):
        return item
    args, result = shorten_json(item.args, SHOWN_CHARACTERS), shorten(item.result, SHOWN_CHARACTERS)
    return evolve(item, args=args, result=result)


SOURCE = "api_server"  # what clients of today's server know; which API it was is told by ``kind``


def session_object(session: Session) -> dict[str, Any]:
    """A session. Its system prompt is not told, only that there is one."""
    return {
        "id": session.session_id,
        "source": SOURCE,
        "kind": session.kind,
        "user_id": None,
        "model": session.model or None,
        "title": session.title or None,
        "started_at": session.created_at,
        "ended_at": session.ended_at or None,
        "end_reason": session.end_reason or None,
        **asdict(session.counters),
        "estimated_cost_usd": None,
        "actual_cost_usd": None,
        "parent_session_id": session.parent or None,
        "last_active": session.updated_at,
        "preview": session.preview,
        "has_system_prompt": bool(session.system_prompt),
        "has_model_config": False,
    }


def message_object(stored: StoredMessage, session_id: str) -> dict[str, Any]:
    """A message in its place; clients page by its id."""
    return {
        "id": stored.number,
        "session_id": session_id,
        **message_fields(stored.message),
        "timestamp": stored.at,
        "token_count": None,
        "finish_reason": None,
        "run_id": stored.run_id,
    }


def message_fields(message: Message) -> dict[str, Any]:
    """What was said. Fields that a message does not have are null, as in a row of a table."""
    content = message.content if isinstance(message.content, str) else list(message.content)
    return {
        "role": message.role,
        "content": content,
        "tool_call_id": message.tool_call_id or None,
        "tool_calls": [_tool_call(call) for call in message.tool_calls] or None,
        "tool_name": message.name or None,
        "reasoning": message.reasoning or None,
    }


def _tool_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.call_id, "type": "function", "function": function}


def end_flags(outcome: Outcome) -> dict[str, Any]:
    """The three booleans that clients of today's server read, and the reason where there is one."""
    reason = {"reason": str(outcome.reason)} if outcome.reason else {}
    return {
        "completed": outcome.status is Status.COMPLETED,
        "partial": outcome.status is not Status.COMPLETED,
        "interrupted": outcome.status is Status.CANCELLED,
        **reason,
    }


class SessionCollector(ChatCollector):
    """Changes in, one reply out. What is an error in Chat Completions is one here."""

    def __init__(self, header: RunHeader) -> None:
        super().__init__(header.stamp)
        self._header = header

    def _body(self, answer: str) -> dict[str, Any]:
        return {
            "object": "hermes.session.chat.completion",
            "session_id": self.outcome.session_id or self._header.session_id,
            "run_id": self._header.run_id,
            "message": {"id": message_id(self._header), "role": "assistant", "content": answer},
            "usage": usage_block(self.outcome.usage),
            **end_flags(self.outcome),
        }
