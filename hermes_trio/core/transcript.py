"""From the items of a turn to the messages that a later turn reads."""

from __future__ import annotations

import json

from attrs import define, field

from hermes_trio.core.items import CallItem, ClientCallItem, Item, MessageItem, ReasoningItem
from hermes_trio.core.lifecycle import CallState
from hermes_trio.core.messages import Message, ToolCall


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
