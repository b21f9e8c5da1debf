"""From the items of a turn to the messages that a later turn reads."""

from __future__ import annotations

import json

from attrs import define, field

from hermes_trio.core.items import CallItem, Item, MessageItem, ReasoningItem
from hermes_trio.core.lifecycle import CallState
from hermes_trio.core.messages import Message, ToolCall


@define
class _Round:
    """One assistant message in the making, with the results of its calls."""

    text: str = ""
    reasoning: str = ""
    calls: list[CallItem] = field(factory=list)

    def messages(self) -> list[Message]:
        if not (self.text or self.reasoning or self.calls):
            return []
        asked = tuple(ToolCall(call.call_id, call.name, json.dumps(call.args)) for call in self.calls)
        said = Message("assistant", self.text, tool_calls=asked, reasoning=self.reasoning)
        return [said, *map(_result, self.calls)]


def transcript(items: tuple[Item, ...]) -> tuple[Message, ...]:
    """What the agent did, as messages: each call stands before its result, and every call has one."""
    rounds = [_Round()]
    for item in items:
        if not isinstance(item, CallItem) and rounds[-1].calls:
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


def _result(call: CallItem) -> Message:
    cut = call.state is not CallState.COMPLETED
    content = f"{call.result}\n[cancelled before it ended]".lstrip() if cut else call.result
    return Message("tool", content, tool_call_id=call.call_id, name=call.name)
