"""Messages of a conversation, items of a turn, and the transcript that turns items into messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import define, field, frozen

from hermes_trio.core.state import CallState

# Text, or the parts of a multimodal message as JSON objects.
Content = str | tuple[Mapping[str, Any], ...]


@frozen
class ToolCall:
    """A call made by an assistant message."""

    call_id: str
    name: str
    arguments: str  # JSON text


@frozen
class Message:
    """One message of a transcript, with the roles of the Chat Completions API."""

    role: str
    content: Content
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    reasoning: str = ""


@frozen
class Usage:
    """Token counts of one turn, summed over all its model calls."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


NO_USAGE = Usage()


@frozen
class MessageItem:
    """Visible text between two tool rounds."""

    text: str


@frozen
class ReasoningItem:
    """Reasoning between two other items."""

    text: str


@frozen
class CallItem:
    """A tool call, complete: only its display is ever shortened."""

    call_id: str
    name: str
    args: Mapping[str, Any]
    state: CallState
    result: str
    is_error: bool
    duration: float
    # Where its result stands in the output: after the first `after` items, and as result number
    # `rank`.
    after: int = 0
    rank: int = 0


@frozen
class ClientCallItem:
    """A call of a tool that the client runs. The result, if any, arrives in a later request."""

    call_id: str
    name: str
    arguments: str


Item = MessageItem | ReasoningItem | CallItem | ClientCallItem  # in the order in which they began


@define
class _Round:
    """One assistant message under construction, and the results of its calls."""

    text: str = ""
    reasoning: str = ""
    calls: list[CallItem | ClientCallItem] = field(factory=list)

    def messages(self) -> list[Message]:
        if not (self.text or self.reasoning or self.calls):
            return []
        calls = tuple(map(_tool_call, self.calls))
        assistant = Message("assistant", self.text, tool_calls=calls, reasoning=self.reasoning)
        return [
            assistant,
            *(_result_message(call) for call in self.calls if isinstance(call, CallItem)),
        ]


def transcript(items: tuple[Item, ...]) -> tuple[Message, ...]:
    """Convert items to messages, each call before its result.

    Calls of the client's tools have no result here: it is part of the client's next request.
    """
    rounds = [_Round()]
    for item in items:
        if not isinstance(item, CallItem | ClientCallItem) and rounds[-1].calls:
            rounds.append(_Round())
        match item:
            case MessageItem(text):
                rounds[-1].text += text
            case ReasoningItem(text):
                rounds[-1].reasoning += text
            case _:
                rounds[-1].calls.append(item)
    return tuple(message for each in rounds for message in each.messages())


def _tool_call(call: CallItem | ClientCallItem) -> ToolCall:
    arguments = call.arguments if isinstance(call, ClientCallItem) else json.dumps(call.args)
    return ToolCall(call.call_id, call.name, arguments)


def _result_message(call: CallItem) -> Message:
    content = call.result
    if call.state is not CallState.COMPLETED:
        content = f"{content}\n[cancelled before it ended]".lstrip()
    return Message("tool", content, tool_call_id=call.call_id, name=call.name)
