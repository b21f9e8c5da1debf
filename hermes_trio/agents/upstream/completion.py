"""Read the response of a model server into one completion.

Incrementally from a stream, or from a whole body. Pure.

Servers agree on the outline only. Some leave out the index or the id of a call, repeat one of them,
send a whole call at once, put reasoning under another name, or usage into every chunk. All of that
is handled here, and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import define, field, frozen

from hermes_trio.agents.upstream.errors import CallFailed, malformed, problem_from_payload
from hermes_trio.core.events import Reasoning, Text
from hermes_trio.core.messages import NO_USAGE, ToolCall, Usage
from hermes_trio.core.shorten import encodable

Delta = Text | Reasoning
Json = Mapping[str, Any]

MAX_CALLS = 128
MAX_ARGUMENT_CHARS = 8 * 1024 * 1024  # of all calls of one completion
MAX_EVENT_BYTES = 8 * 1024 * 1024  # a tool call that writes a file may arrive in one event


# -- server-sent events --


class EventTooLong(Exception):
    """An event exceeds the size limit. The message may be shown to the user."""


class SseDecoder:
    """Decodes a stream of server-sent events, in pieces of any size, to the data of complete events.

    Text is decoded per event, so a piece may end in the middle of a character.
    """

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._line = bytearray()  # the incomplete line
        self._data: list[bytes] = []  # the lines of the incomplete event
        self._size = 0

    def feed(self, piece: bytes) -> list[str]:
        """Add a piece; return the data of the events that it completes.

        Raises:
            EventTooLong: an event exceeds the limit.
        """
        self._line += piece
        if b"\n" not in piece and b"\r" not in piece:
            self._check_size(len(self._line))
            return []
        lines = bytes(self._line).splitlines(keepends=True)
        # A line that ends in a carriage return may still get its line feed.
        self._line = bytearray() if lines[-1].endswith(b"\n") else bytearray(lines.pop())
        events = [event for line in lines for event in self._take_line(line.rstrip(b"\r\n"))]
        self._check_size(len(self._line))
        return events

    def close(self) -> list[str]:
        """End the stream; return the last event if it was not terminated."""
        rest, self._line = bytes(self._line), bytearray()
        return [event for line in (rest.rstrip(b"\r"), b"") for event in self._take_line(line)]

    def _take_line(self, line: bytes) -> list[str]:
        if not line:
            data, self._data, self._size = self._data, [], 0
            return [b"\n".join(data).decode("utf-8", "replace")] if data else []
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(value)
            self._check_size(0)
        return []

    def _check_size(self, pending: int) -> None:
        if self._size + pending > self._limit:
            raise EventTooLong(f"one event has more than {self._limit} bytes")


# -- completions --


@frozen
class Completion:
    """The outcome of one model call."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()  # ids may be missing or repeated
    finish: str = ""
    usage: Usage = NO_USAGE


EMPTY_COMPLETION = Completion()


class CompletionBuilder:
    """Builds a completion from the payloads of a stream, or from one body."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls = _CallBuilder()
        self._finish = ""
        self._usage = NO_USAGE

    @property
    def has_output(self) -> bool:
        """Whether the user has seen part of it, so that the call must not be retried."""
        return bool(self._text or self._reasoning)

    @property
    def is_finished(self) -> bool:
        """Whether the server gave a finish reason."""
        return bool(self._finish)

    @property
    def completion(self) -> Completion:
        """Everything received so far."""
        text, reasoning = "".join(self._text), "".join(self._reasoning)
        return Completion(text, reasoning, self._calls.build(), self._finish, self._usage)

    def read(self, data: str) -> list[Delta]:
        """Add the data of one event, or a whole body; return the text and reasoning in it.

        Raises:
            CallFailed: the data is not a chunk, or it reports an error.
        """
        try:
            payload = json.loads(data)
            if isinstance(payload, Mapping):
                return list(self._take(payload))
        except ValueError:
            raise CallFailed(malformed("the response is not JSON")) from None
        except RecursionError:
            raise CallFailed(malformed("the response is nested too deeply")) from None
        raise CallFailed(malformed("the response is not a JSON object"))

    def _take(self, payload: Json) -> Iterator[Delta]:
        if error := payload.get("error") or (payload.get("object") == "error" and payload):
            raise CallFailed(problem_from_payload(error))
        if isinstance(counts := payload.get("usage"), Mapping):
            self._usage = read_usage(counts)
        for choice in _objects(payload.get("choices")):
            if not choice.get("index"):
                yield from self._take_choice(choice)

    def _take_choice(self, choice: Json) -> Iterator[Delta]:
        delta = choice.get("delta") or choice.get("message") or {}
        if not isinstance(delta, Mapping):
            raise CallFailed(malformed("a delta is not an object"))
        content = delta.get("content")
        # Some servers send the same reasoning under both names.
        named = _string(delta.get("reasoning_content")) or _string(delta.get("reasoning"))
        if reasoning := named or _join_parts(content, "thinking"):
            self._reasoning.append(reasoning)
            yield Reasoning(reasoning)
        if (
            text := _string(content)
            or _join_parts(content, "text")
            or _string(delta.get("refusal"))
        ):
            self._text.append(text)
            yield Text(text)
        for call in _objects(delta.get("tool_calls")):
            self._calls.add(_fragment(call))
        self._finish = _string(choice.get("finish_reason")) or self._finish


def read_usage(counts: Json) -> Usage:
    """Read the token counts that a server reports."""
    prompt, completion = (
        _object(counts.get(f"{name}_tokens_details")) for name in ("prompt", "completion")
    )
    return Usage(
        input_tokens=_count(counts.get("prompt_tokens")),
        output_tokens=_count(counts.get("completion_tokens")),
        cached_tokens=_count(prompt.get("cached_tokens") or counts.get("prompt_cache_hit_tokens")),
        reasoning_tokens=_count(completion.get("reasoning_tokens")),
    )


def add_usage(one: Usage, other: Usage) -> Usage:
    """Return the sum of two token counts."""
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cached_tokens + other.cached_tokens,
        one.cache_write_tokens + other.cache_write_tokens,
        one.reasoning_tokens + other.reasoning_tokens,
    )


# -- tool calls --


@define(eq=False)
class _CallDraft:
    """A tool call whose pieces are still arriving."""

    index: int | None
    call_id: str = ""
    name: str = ""
    parts: list[str] = field(factory=list)

    @property
    def arguments(self) -> str:
        return "".join(self.parts)

    @property
    def is_complete(self) -> bool:
        # The cheap test decides nearly always: arguments may be long, and arrive in thousands of
        # pieces.
        if not self.parts or not self.parts[-1].rstrip().endswith("}"):
            return False
        try:
            return isinstance(json.loads(self.arguments), dict)
        except (ValueError, RecursionError):
            return False


@frozen
class _CallFragment:
    """A piece of a tool call."""

    index: int | None
    call_id: str
    name: str
    arguments: str

    def starts_after(self, draft: _CallDraft) -> bool:
        """Return True if this piece starts a new call although it has the draft's index or id."""
        if self.call_id and draft.call_id and self.call_id != draft.call_id:
            return True
        may_start = self.name != draft.name or self.arguments.lstrip().startswith("{")
        return bool(self.name) and may_start and draft.is_complete


class _CallBuilder:
    """Joins the tool calls of one completion from their pieces."""

    def __init__(self) -> None:
        self._drafts: list[_CallDraft] = []
        self._size = 0

    def add(self, fragment: _CallFragment) -> None:
        # The last draft with the same index. If indices are left out: with the same id, or the last.
        same_index = [draft for draft in self._drafts if draft.index == fragment.index]
        same_id = [draft for draft in same_index if draft.call_id == fragment.call_id]
        if fragment.index is None and fragment.call_id:
            same_index = []
        found = same_id or same_index
        draft = found[-1] if found else None
        if draft is None or fragment.starts_after(draft):
            draft = _CallDraft(fragment.index)
            self._drafts.append(draft)
        draft.call_id = draft.call_id or fragment.call_id
        draft.name = draft.name or fragment.name
        draft.parts.append(fragment.arguments)
        self._size += len(fragment.arguments)
        if len(self._drafts) > MAX_CALLS or self._size > MAX_ARGUMENT_CHARS:
            raise CallFailed(malformed("the tool calls of one answer are too many or too long"))

    def build(self) -> tuple[ToolCall, ...]:
        """Return the calls so far. A call without a name is dropped."""
        return tuple(
            ToolCall(draft.call_id, draft.name, draft.arguments)
            for draft in self._drafts
            if draft.name
        )


def _fragment(call: Json) -> _CallFragment:
    index, function = call.get("index"), _object(call.get("function"))
    arguments = function.get("arguments")
    return _CallFragment(
        index if isinstance(index, int) else None,
        _string(call.get("id")),
        _string(function.get("name")),
        json.dumps(arguments) if isinstance(arguments, Mapping) else _string(arguments),
    )


# -- lenient access --


def _join_parts(content: object, kind: str) -> str:
    """Join content that is a list of parts; thinking is nested once more."""
    parts = [part for part in _objects(content) if part.get("type") == kind]
    return "".join(_string(part.get(kind)) or _join_parts(part.get(kind), "text") for part in parts)


def _objects(value: object) -> list[Json]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _object(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}


def _string(value: object) -> str:
    """Return a string without lone surrogates, which strict encoders reject."""
    return encodable(value) if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
