"""From the JSON of a model's server to one answer: piece by piece from a stream, or in one piece. Pure.

Servers agree on the outline only. Some leave out the index or the id of a call, repeat one of them, send a whole call
at once, put the reasoning under another name or usage into every chunk. All of that is read here, and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import define, field, frozen

from hermes_trio.agents.upstream.problems import CallFailed, malformed, of_error
from hermes_trio.core.events import Reasoning, Text
from hermes_trio.core.messages import NO_USAGE, ToolCall, Usage
from hermes_trio.core.shorten import encodable

Delta = Text | Reasoning
Json = Mapping[str, Any]

MAX_CALLS = 128
MAX_ARGUMENTS = 8 * 1024 * 1024  # characters, of all calls of one answer


@frozen
class Answer:
    """What one model call gave."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()  # ids may be missing or the same
    finish: str = ""
    usage: Usage = NO_USAGE


NO_ANSWER = Answer()


@define(eq=False)
class _Draft:
    """A tool call whose pieces still come."""

    index: int | None
    call_id: str = ""
    name: str = ""
    parts: list[str] = field(factory=list)

    @property
    def arguments(self) -> str:
        return "".join(self.parts)

    @property
    def is_whole(self) -> bool:
        if not self.parts or not self.parts[-1].rstrip().endswith("}"):
            return (
                False  # cheap, and nearly always so: arguments may be long, and come in thousands of pieces
            )
        try:
            return isinstance(json.loads(self.arguments), dict)
        except (ValueError, RecursionError):
            return False


@frozen
class _Fragment:
    """A piece of a tool call."""

    index: int | None
    call_id: str
    name: str
    arguments: str

    def begins_after(self, draft: _Draft) -> bool:
        """Whether this belongs to another call than the draft, though it has the same index or id."""
        if self.call_id and draft.call_id and self.call_id != draft.call_id:
            return True
        may_begin = self.name != draft.name or self.arguments.lstrip().startswith("{")
        return bool(self.name) and may_begin and draft.is_whole


class _Calls:
    """The calls of one answer, joined from their pieces."""

    def __init__(self) -> None:
        self._drafts: list[_Draft] = []
        self._size = 0

    def take(self, fragment: _Fragment) -> None:
        draft = self._draft_of(fragment)
        draft.call_id = draft.call_id or fragment.call_id
        draft.name = draft.name or fragment.name
        draft.parts.append(fragment.arguments)
        self._size += len(fragment.arguments)
        if len(self._drafts) > MAX_CALLS or self._size > MAX_ARGUMENTS:
            raise CallFailed(malformed("the tool calls of one answer are too many or too long"))

    def made(self) -> tuple[ToolCall, ...]:
        """What was called. A call without a name can be nobody's."""
        return tuple(
            ToolCall(draft.call_id, draft.name, draft.arguments) for draft in self._drafts if draft.name
        )

    def _draft_of(self, fragment: _Fragment) -> _Draft:
        found = self._candidate(fragment)
        if found is None or fragment.begins_after(found):
            found = _Draft(fragment.index)
            self._drafts.append(found)
        return found

    def _candidate(self, fragment: _Fragment) -> _Draft | None:
        """The last call that has the same index, or, where indices are left out, the same id, or is the last."""
        same = [draft for draft in self._drafts if draft.index == fragment.index]
        own = [draft for draft in same if draft.call_id == fragment.call_id]
        if fragment.index is None and fragment.call_id:
            same = []
        found = own or same
        return found[-1] if found else None


class Assembly:
    """One answer in the making."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls = _Calls()
        self._finish = ""
        self._usage = NO_USAGE

    @property
    def has_spoken(self) -> bool:
        """Whether the user saw something of it: then the call must not be made again."""
        return bool(self._text or self._reasoning)

    @property
    def is_finished(self) -> bool:
        """Whether the server said why it stopped."""
        return bool(self._finish)

    @property
    def answer(self) -> Answer:
        """Everything so far."""
        text, reasoning = "".join(self._text), "".join(self._reasoning)
        return Answer(text, reasoning, self._calls.made(), self._finish, self._usage)

    def read(self, data: str) -> list[Delta]:
        """Take the data of one event, or a whole body.

        Raises:
            CallFailed: it is no chunk, or it tells an error.
        """
        try:
            payload = json.loads(data)
            if isinstance(payload, Mapping):
                return list(self._take(payload))
        except ValueError:
            raise CallFailed(malformed("what came is not JSON")) from None
        except RecursionError:
            raise CallFailed(malformed("what came is nested too deeply")) from None
        raise CallFailed(malformed("what came is not a JSON object"))

    def _take(self, payload: Json) -> Iterator[Delta]:
        if error := payload.get("error") or (payload.get("object") == "error" and payload):
            raise CallFailed(of_error(error))
        if isinstance(counts := payload.get("usage"), Mapping):
            self._usage = read_usage(counts)
        for choice in _objects(payload.get("choices")):
            if not choice.get("index"):
                yield from self._take_choice(choice)

    def _take_choice(self, choice: Json) -> Iterator[Delta]:
        said = choice.get("delta") or choice.get("message") or {}
        if not isinstance(said, Mapping):
            raise CallFailed(malformed("a delta is not an object"))
        if thought := _reasoning_of(said):
            self._reasoning.append(thought)
            yield Reasoning(thought)
        if text := _text_of(said):
            self._text.append(text)
            yield Text(text)
        for call in _objects(said.get("tool_calls")):
            self._calls.take(_fragment(call))
        self._finish = _word(choice.get("finish_reason")) or self._finish


def read_usage(counts: Json) -> Usage:
    """Token counts, as far as they are told."""
    prompt, completion = (_object(counts.get(f"{name}_tokens_details")) for name in ("prompt", "completion"))
    return Usage(
        input_tokens=_number(counts.get("prompt_tokens")),
        output_tokens=_number(counts.get("completion_tokens")),
        cached_tokens=_number(prompt.get("cached_tokens") or counts.get("prompt_cache_hit_tokens")),
        reasoning_tokens=_number(completion.get("reasoning_tokens")),
    )


def add_usage(one: Usage, other: Usage) -> Usage:
    """The tokens of both."""
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cached_tokens + other.cached_tokens,
        one.cache_write_tokens + other.cache_write_tokens,
        one.reasoning_tokens + other.reasoning_tokens,
    )


def _fragment(call: Json) -> _Fragment:
    index, function = call.get("index"), _object(call.get("function"))
    arguments = function.get("arguments")
    return _Fragment(
        index if isinstance(index, int) else None,
        _word(call.get("id")),
        _word(function.get("name")),
        json.dumps(arguments) if isinstance(arguments, Mapping) else _word(arguments),
    )


def _reasoning_of(said: Json) -> str:
    """Some servers send it under both names: it is the same then."""
    named = _word(said.get("reasoning_content")) or _word(said.get("reasoning"))
    return named or _joined(said.get("content"), "thinking")


def _text_of(said: Json) -> str:
    content = said.get("content")
    return _word(content) or _joined(content, "text") or _word(said.get("refusal"))


def _joined(content: object, kind: str) -> str:
    """The text of content that comes as a list of parts; thinking is nested once more."""
    parts = [part for part in _objects(content) if part.get("type") == kind]
    return "".join(_word(part.get(kind)) or _joined(part.get(kind), "text") for part in parts)


def _objects(value: object) -> list[Json]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _object(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}


def _word(value: object) -> str:
    """A text, never half a character: strict encoders further on refuse those."""
    return encodable(value) if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
