"""Sessions as values: what the store keeps of them beside what was said."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from itertools import count

from attrs import frozen

from hermes_trio.core.messages import Content, Message, Usage

MAX_TITLE = 100  # characters
PREVIEW_CHARACTERS = 60
MANY = 2**40  # no counter of one run is larger: their sum must fit wherever it is kept

BRANCHED = "branched"  # why a session ended that was forked
COMPRESSED = "compression"  # why a session ended whose agent moved on to another

_NUMBER = re.compile(r" #[0-9]+$")


@frozen
class Counters:
    """What there is in a session, and what it took."""

    message_count: int = 0
    tool_call_count: int = 0
    api_call_count: int = 0  # runs that have ended
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


NO_COUNTS = Counters()


@frozen
class Session:
    """A transcript without its messages."""

    principal: str
    session_id: str
    kind: str  # the API that made it: chat, responses, runs, sessions
    created_at: float
    updated_at: float  # when something was last begun or said in it
    model: str = ""
    title: str = ""  # "" for none; the others are unique for each principal
    system_prompt: str = ""
    preview: str = ""  # the beginning of the first user message
    ended_at: float = 0.0  # 0 while it has not ended
    end_reason: str = ""
    parent: str = ""  # the session that it was forked from or continues
    counters: Counters = NO_COUNTS


@frozen
class NoSession:
    """There is no such session, or it is somebody else's."""


@frozen
class SessionExists:
    """A session of this id is there already."""


@frozen
class TitleTaken:
    """Another session has this title."""


@frozen
class SessionBusy:
    """A run is in progress in the session."""


@frozen
class SessionDeleted:
    """The session and all that was said in it are gone."""


@frozen
class SessionChange:
    """What is to become of a session. The first end reason wins; "" is none."""

    sets_title: bool = False
    title: str = ""  # "" removes the title
    end_reason: str = ""


@frozen
class SessionQuery:
    """Which sessions are wanted."""

    limit: int = 50
    offset: int = 0
    kind: str = ""  # "" for all
    include_children: bool = False  # also those that go on elsewhere


@frozen
class SessionPage:
    """Some sessions, the one with the latest activity first."""

    sessions: tuple[Session, ...]
    has_more: bool


@frozen
class StoredMessage:
    """A message in its place."""

    number: int  # counts from 1 in its session
    message: Message
    at: float  # seconds since the epoch
    run_id: str  # the run in which it was said, also when it was copied from another session


@frozen
class MessagePage:
    """Some messages of a session, in the order they were said."""

    messages: tuple[StoredMessage, ...]
    has_more: bool


def counters(messages: Iterable[Message], usage: Usage) -> Counters:
    """What one run adds."""
    said = tuple(messages)
    return Counters(
        message_count=len(said),
        tool_call_count=sum(len(message.tool_calls) for message in said),
        api_call_count=1,
        input_tokens=_bounded(usage.input_tokens),
        output_tokens=_bounded(usage.output_tokens),
        cache_read_tokens=_bounded(usage.cached_tokens),
        cache_write_tokens=_bounded(usage.cache_write_tokens),
        reasoning_tokens=_bounded(usage.reasoning_tokens),
    )


def _bounded(number: int) -> int:
    return max(0, min(number, MANY))


def preview(messages: Iterable[Message]) -> str:
    """The beginning of the first user message in one line, "" if there is none with text."""
    said = (_text(message.content) for message in messages if message.role == "user")
    return next(filter(None, said), "")


def _text(content: Content) -> str:
    if not isinstance(content, str):
        content = " ".join(str(part.get("text") or "") for part in content)
    # No more is looked at: a pasted file has millions of words.
    words = " ".join(content[: 50 * PREVIEW_CHARACTERS].split())
    return words if len(words) <= PREVIEW_CHARACTERS else f"{words[: PREVIEW_CHARACTERS - 1]}…"


def base_title(title: str) -> str:
    """A title without its number."""
    return _NUMBER.sub("", title)


def next_title(title: str, taken: Container[str]) -> str:
    """The next free numbered title: after ``T`` or ``T #2`` comes ``T #3``, unless it is taken. No title has none."""
    base = base_title(title)
    numbered = (_numbered(base, number) for number in count(2))
    return next(each for each in numbered if each not in taken) if base else ""


def _numbered(base: str, number: int) -> str:
    ending = f" #{number}"
    return f"{base[: MAX_TITLE - len(ending)]}{ending}"
