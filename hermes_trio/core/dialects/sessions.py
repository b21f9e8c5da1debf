"""Sessions: turns rendered as a stream of events or collected into one reply, and the objects of the Sessions API.

A frame has ``event:``, ``id:`` and ``data:`` lines. The id is also the field ``seq``; it counts
from 1, without a gap unless the process died, and a browser that reconnects sends the last one
back. JSON is not ASCII-escaped.

The order of a stream: ``run.started`` and ``message.started`` at once; then one event per change;
then ``assistant.completed`` and ``run.completed``, or ``error`` if the run failed by the rule of
the Runs API; ``done``. All frames are a pure function of the header and the changes, so a stream is
resumed after any event by rendering it again and skipping what the client has. A client that names
an event which the log does not contain gets the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    NumbersSkipped,
    ReasoningAdded,
    TextAdded,
    ToolOutputAdded,
)
from hermes_trio.core.dialects.chat import AGENT_FAILED, ChatCollector
from hermes_trio.core.dialects.responses import usage_block
from hermes_trio.core.dialects.runs import STARTED, Timestamps, event_name, final_state, final_text
from hermes_trio.core.dialects.wire import (
    PREVIEW_CHARACTERS,
    SHOWN_CHARACTERS,
    encode_raw,
    full_frame,
    request_fields,
    resolution_fields,
)
from hermes_trio.core.messages import CallItem, Item, Message, MessageItem, ToolCall, transcript
from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.core.records import RunHeader
from hermes_trio.core.sessions import Session, StoredMessage, excerpt
from hermes_trio.core.shorten import shorten, shorten_json
from hermes_trio.core.state import RunState
from hermes_trio.core.turn import ReplayedTurn

FROM_THE_START = 0  # the event number a new client resumes after
REASONING_TOOL = "_thinking"  # the tool name under which existing clients receive reasoning
MESSAGE_CHARACTERS = 16_000  # of the client's own message, which may contain images
SOURCE = "api_server"  # the value existing clients know; `kind` says which API it was

Fields = Mapping[str, Any]


# -- the objects --


def session_object(session: Session) -> dict[str, Any]:
    """Return a session. Its system prompt is not shown, only whether it has one."""
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
        "forked_messages": session.forked_messages if session.forked_messages >= 0 else None,
        "pinned": session.is_pinned,
        "last_active": session.updated_at,
        "preview": session.preview,
        "has_system_prompt": bool(session.system_prompt),
        "has_model_config": False,
    }


def match_object(session: Session, stored: StoredMessage, words: Sequence[str]) -> dict[str, Any]:
    """Return a message that was found by a search, with the part of it around the first word."""
    return {
        "object": "hermes.message.match",
        "session_id": session.session_id,
        "title": session.title or session.preview,
        "message_id": stored.number,
        "run_id": stored.run_id,
        "role": stored.message.role,
        "timestamp": stored.at,
        "excerpt": excerpt(stored.message, words),
    }


def message_object(stored: StoredMessage, session_id: str) -> dict[str, Any]:
    """Return a message of a transcript. Clients use its id as a cursor."""
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
    """Return a message with every field, null where it has none."""
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


def _outcome_flags(outcome: Outcome) -> dict[str, Any]:
    """Return the three booleans that existing clients read, and the reason if there is one."""
    reason = {"reason": str(outcome.reason)} if outcome.reason else {}
    return {
        "completed": outcome.status is Status.COMPLETED,
        "partial": outcome.status is not Status.COMPLETED,
        "interrupted": outcome.status is Status.CANCELLED,
        **reason,
    }


def _message_id(header: RunHeader) -> str:
    """Return the id of the one message that a run produces."""
    return f"msg_{header.run_id.removeprefix('run_')}"


# -- streams --


class SessionStream:
    """Renders one run.

    Events up to number ``after`` are counted but not written: the client has them.
    """

    def __init__(self, header: RunHeader, after: int = FROM_THE_START) -> None:
        self._header = header
        self._session_id = header.session_id
        self._message_id = _message_id(header)
        self._after = after
        self._number = 1  # of the next event
        self._times = Timestamps(header)
        self._replayed = ReplayedTurn()
        self._running: dict[str, CallStarted] = {}

    def opening(self) -> bytes:
        """Return the first two events. They are sent before the agent starts."""
        started = self._frame(STARTED, partial(_user_message, self._header))
        message = {"message": {"id": self._message_id, "role": "assistant"}}
        return started + self._frame("message.started", lambda: message)

    def render(self, changes: Iterable[Change]) -> bytes:
        """Return all frames of some changes, joined for one write."""
        return b"".join(map(self._render, changes))

    def _render(self, change: Change) -> bytes:
        self._times.take(change)
        self._replayed.take(change)
        return self._HANDLERS[type(change)](self, change)

    def _text(self, change: TextAdded) -> bytes:
        return self._message_event("assistant.delta", lambda: {"delta": change.text})

    def _reasoning(self, change: ReasoningAdded) -> bytes:
        return self._message_event(
            "tool.progress", lambda: {"tool_name": REASONING_TOOL, "delta": change.text}
        )

    def _call_started(self, change: CallStarted) -> bytes:
        self._running[change.call_id] = change
        return self._message_event("tool.started", partial(_call_fields, change))

    def _tool_output(self, change: ToolOutputAdded) -> bytes:
        name = self._running[change.call_id].name
        return self._message_event(
            "tool.output",
            lambda: {
                "tool_name": name,
                "toolCallId": change.call_id,
                "delta": shorten(change.text, SHOWN_CHARACTERS),
            },
        )

    def _call_ended(self, change: CallEnded) -> bytes:
        start = self._running.pop(change.call_id)
        return self._message_event(
            "tool.completed",
            lambda: {
                **_call_fields(start),
                "result": shorten(change.result, SHOWN_CHARACTERS),
                "duration": round(change.duration, 3),
                "error": change.is_error,
                "status": str(change.state),
            },
        )

    def _client_tool_called(self, change: ClientToolCalled) -> bytes:
        return self._message_event(
            event_name(change),
            lambda: {
                "tool_name": change.name,
                "toolCallId": change.call_id,
                "arguments": shorten(change.arguments, SHOWN_CHARACTERS),
            },
        )

    def _approval_requested(self, change: ApprovalRequested) -> bytes:
        return self._message_event(event_name(change), partial(request_fields, change))

    def _approval_resolved(self, change: ApprovalResolved) -> bytes:
        return self._message_event(event_name(change), partial(resolution_fields, change))

    def _numbers_skipped(self, change: NumbersSkipped) -> bytes:
        self._number += change.count
        return b""

    def _ended(self, change: Ended) -> bytes:
        outcome = change.outcome
        state = final_state(outcome)
        self._session_id = outcome.session_id or self._session_id
        events = (
            self._failure_events(outcome) if state is RunState.FAILED else self._end_events(outcome)
        )
        if self._after > self._number + len(events):
            # There is no such event, so the client does not have these.
            self._after = FROM_THE_START
        frames = [self._message_event(*event) for event in events]
        return b"".join(frames) + self._frame("done", lambda: {"status": str(state)})

    _HANDLERS: ClassVar[Mapping[type[Change], Callable[[SessionStream, Any], bytes]]] = {
        TextAdded: _text,
        ReasoningAdded: _reasoning,
        CallStarted: _call_started,
        ToolOutputAdded: _tool_output,
        CallEnded: _call_ended,
        ClientToolCalled: _client_tool_called,
        ApprovalRequested: _approval_requested,
        ApprovalResolved: _approval_resolved,
        NumbersSkipped: _numbers_skipped,
        Ended: _ended,
    }

    def _failure_events(self, outcome: Outcome) -> list[tuple[str, Callable[[], Fields]]]:
        message = outcome.failure.message or "The run failed."
        return [("error", lambda: {"message": message, **_outcome_flags(outcome)})]

    def _end_events(self, outcome: Outcome) -> list[tuple[str, Callable[[], Fields]]]:
        self._replayed.turn.cancel(outcome.reason)  # gives calls that were cut short their results
        items = self._replayed.turn.items
        texts = [item.text for item in items if isinstance(item, MessageItem)]
        flags = _outcome_flags(outcome)

        def result() -> Fields:
            # Arguments and results of tools are shortened here; the stored transcript has them
            # whole.
            messages = transcript(tuple(map(_shortened, items)))
            return {
                "messages": [message_fields(message) for message in messages],
                "usage": usage_block(outcome.usage),
                **flags,
            }

        return [
            ("assistant.completed", lambda: {"content": final_text(texts, outcome), **flags}),
            ("run.completed", result),
        ]

    def _message_event(self, name: str, make_fields: Callable[[], Fields]) -> bytes:
        """Return an event about the message that the run produces."""
        return self._frame(name, lambda: {"message_id": self._message_id, **make_fields()})

    def _frame(self, name: str, make_fields: Callable[[], Fields]) -> bytes:
        number = self._number
        self._number += 1
        if number <= self._after:
            return b""
        head = {"session_id": self._session_id, "run_id": self._header.run_id, "seq": number}
        return full_frame(
            name, number, encode_raw({**head, "ts": self._times.latest, **make_fields()})
        )


def frames_after(
    header: RunHeader, changes: Iterable[Change], after: int = FROM_THE_START
) -> bytes:
    """Render a whole log from the event after ``after`` on."""
    stream = SessionStream(header, after)
    return stream.opening() + stream.render(changes)


def _user_message(header: RunHeader) -> Fields:
    content: Any = header.messages[-1].content if header.messages else ""
    if isinstance(content, str):
        content = shorten(content, MESSAGE_CHARACTERS)
    else:
        content = shorten_json([dict(part) for part in content], MESSAGE_CHARACTERS)
    return {"user_message": {"role": "user", "content": content}}


def _call_fields(change: CallStarted) -> Fields:
    return {
        "tool_name": change.name,
        "toolCallId": change.call_id,
        "preview": tool_display.preview(change.name, change.args, PREVIEW_CHARACTERS) or None,
        "args": shorten_json(change.args, SHOWN_CHARACTERS),
    }


def _shortened(item: Item) -> Item:
    if not isinstance(item, CallItem):
        return item
    args, result = shorten_json(item.args, SHOWN_CHARACTERS), shorten(item.result, SHOWN_CHARACTERS)
    return evolve(item, args=args, result=result)


# -- batch replies --


class SessionCollector(ChatCollector):
    """Collects the changes of one run into a reply.

    Failures are reported as in Chat Completions.
    """

    def __init__(self, header: RunHeader, failure_status: int = AGENT_FAILED) -> None:
        super().__init__(header.stamp, failure_status)
        self._header = header

    def _body(self, answer: str) -> dict[str, Any]:
        return {
            "object": "hermes.session.chat.completion",
            "session_id": self.outcome.session_id or self._header.session_id,
            "run_id": self._header.run_id,
            "message": {"id": _message_id(self._header), "role": "assistant", "content": answer},
            "usage": usage_block(self.outcome.usage),
            **_outcome_flags(self.outcome),
        }
