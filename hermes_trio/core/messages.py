"""What was said: the messages of a conversation as values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import define, field, frozen

from hermes_trio.core.state import CallState

# A plain text, or the parts of a multimodal message as JSON objects.
Content = str | tuple[Mapping[str, Any], ...]


@frozen
class ToolCall:
    """A call that an assistant message made."""

    call_id: str
    name: str
    arguments: str  # the JSON text


@frozen
class Message:
    """One message of a transcript, in the roles of the Chat Completions API."""

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
        """Everything that was read and written."""
        return self.input_tokens + self.output_tokens


NO_USAGE = Usage()


@frozen
class MessageItem:
    """Visible text between two tool rounds."""

    text: str


@frozen
class ReasoningItem:
    """Thinking between two other items."""

    text: str


@frozen
class CallItem:
    """A tool call with all that is known of it. Never shortened: only what is shown is."""

    call_id: str
    name: str
    args: Mapping[str, Any]
    state: CallState
    result: str
    is_error: bool
    duration: float
    # When it ended, as a place in the order of things: after so many items had begun, and as the so-manieth result.
    after: int = 0
    rank: int = 0


@frozen
class ClientCallItem:
    """A call of a tool that the client runs. Its result, if it comes, is in what the client says next."""

    call_id: str
    name: str
    arguments: str


Item = MessageItem | ReasoningItem | CallItem | ClientCallItem


@define
class _Round:
    """One assistant message in the making, with the results of its calls."""

    text: str = ""
    reasoning: str = ""
    calls: list[CallItem | ClientCallItem] = field(factory=list)

    def messages(self) -> list[Message]:
        if not (self.text or self.reasoning or self.calls):
            return []
        said = Message(
            "assistant", self.text, tool_calls=tuple(map(_asked, self.calls)), reasoning=self.reasoning
        )
        return [said, *(_result(call) for call in self.calls if isinstance(call, CallItem))]


def transcript(items: tuple[Item, ...]) -> tuple[Message, ...]:
    """What the agent did, as messages: each call stands before its result.

    Every call has one, except those of the client's tools: their results are what the client says next.
    """
    rounds = [_Round()]
    for item in items:
        if not isinstance(item, CallItem | ClientCallItem) and rounds[-1].calls:
            rounds.append(_Round())
        _put(rounds[-1], item)
    return tuple(message for each in rounds for message in each.messages())


def _put(into: _Round, item: Item) -> None:
    match item:
        case MessageItem(text):
            into.text += text
        case ReasoningItem(text):
            into.reasoning += text
        case _:
            into.calls.append(item)


def _asked(call: CallItem | ClientCallItem) -> ToolCall:
    arguments = call.arguments if isinstance(call, ClientCallItem) else json.dumps(call.args)
    return ToolCall(call.call_id, call.name, arguments)


def _result(call: CallItem) -> Message:
    cut = call.state is not CallState.COMPLETED
    content = f"{call.result}\n[cancelled before it ended]".lstrip() if cut else call.result
    return Message("tool", content, tool_call_id=call.call_id, name=call.name)
