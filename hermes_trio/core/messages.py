"""Messages of a conversation, items of a turn, and the transcript that turns items into messages."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import dropwhile
from typing import Any

from attrs import define, evolve, field, frozen

from hermes_trio.core.state import CallState

# Text, or the parts of a multimodal message as JSON objects.
Content = str | tuple[Mapping[str, Any], ...]


def text_of(content: Content, separator: str = "") -> str:
    """Return the text of a message, without its images."""
    if isinstance(content, str):
        return content
    return separator.join(str(part.get("text") or "") for part in content)


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

    @property
    def is_answer(self) -> bool:
        """Whether it is the assistant's and calls no tools."""
        return self.role == "assistant" and not self.tool_calls


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
    approval_id: str = ""  # the latest approval request about it
    # It waits for that approval. The run that continues this one has the call, and its result.
    is_deferred: bool = False


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

    Calls of the client's tools have no result here: it is part of the client's next request. A
    deferred call is part of the run that continues this one.
    """
    rounds = [_Round()]
    for item in items:
        if isinstance(item, CallItem) and item.is_deferred:
            continue
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


def join_continued(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Join each answer with its continuation, which a later turn added as a message of its own."""
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1].is_answer and message.role == "assistant":
            joined.append(_continued(joined.pop(), message))
        else:
            joined.append(message)
    return tuple(joined)


def _continued(start: Message, rest: Message) -> Message:
    content: Content
    if isinstance(start.content, str) and isinstance(rest.content, str):
        content = start.content + rest.content
    else:
        content = (*_parts(start.content), *_parts(rest.content))
    return evolve(rest, content=content, reasoning=start.reasoning + rest.reasoning)


def _parts(content: Content) -> tuple[Mapping[str, Any], ...]:
    return ({"type": "text", "text": content},) if isinstance(content, str) else content


def continue_answer(
    stored: tuple[Message, ...], sent: tuple[Message, ...]
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Return the history for continuing an answer in a session, and the messages that are new in it.

    Args:
        stored: the transcript of the session.
        sent: the last question and the start of its answer, as the client has them. That is
            without the calls of the server's tools, so an answer that reads the same is the stored
            one, and nothing is new. The same question with another answer replaces the last one.
    """
    *_, start = (0, *(n for n, message in enumerate(stored) if message.role == "user"))
    if _assistant_text(stored[start:]) == _assistant_text(sent):
        return stored, ()
    is_same_question = stored[start:][:1] == sent[:1]
    return (*(stored[:start] if is_same_question else stored), *sent), sent


def _assistant_text(messages: tuple[Message, ...]) -> str:
    """Return what the assistant said, as far as it is text."""
    texts = [message.content for message in messages if message.role == "assistant"]
    return "".join(text for text in texts if isinstance(text, str)).strip()


def restore_calls(
    history: tuple[Message, ...], turns: Iterable[tuple[Message, ...]]
) -> tuple[Message, ...]:
    """Put back the calls of the server's tools into turns that ended with calls of the client's.

    A client has only its own calls of such a turn, and would have the agent do the rest again.

    Args:
        history: what the client sent.
        turns: the messages of the turns on record. A turn is known by the ids and the names of the
            client's calls. If different turns have the same, none of them is put back.
    """
    recorded: defaultdict[frozenset[tuple[str, str]], list[tuple[Message, ...]]] = defaultdict(list)
    for turn in turns:
        done = tuple(dropwhile(lambda message: message.role != "assistant", turn))
        answered = {message.tool_call_id for message in done if message.role == "tool"}
        calls = [call for message in done for call in message.tool_calls]
        handed_over = _call_keys(call for call in calls if call.call_id not in answered)
        if answered and done not in recorded[handed_over]:
            recorded[handed_over].append(done)
    restored: list[Message] = []
    for message in history:
        found = recorded[_call_keys(message.tool_calls)] if message.tool_calls else ()
        restored += found[0] if len(found) == 1 else (message,)
    return tuple(restored)


def _call_keys(calls: Iterable[ToolCall]) -> frozenset[tuple[str, str]]:
    return frozenset((call.call_id, call.name) for call in calls)


def _tool_call(call: CallItem | ClientCallItem) -> ToolCall:
    arguments = call.arguments if isinstance(call, ClientCallItem) else json.dumps(call.args)
    return ToolCall(call.call_id, call.name, arguments)


def _result_message(call: CallItem) -> Message:
    content = call.result
    if call.state is not CallState.COMPLETED:
        content = f"{content}\n[cancelled before it ended]".lstrip()
    return Message("tool", content, tool_call_id=call.call_id, name=call.name)
