"""Sessions as values: what the store keeps about a session beside its messages."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from itertools import count

from attrs import frozen

from hermes_trio.core.messages import Content, Message, Usage, text_of

MAX_TITLE = 100  # characters
PREVIEW_CHARACTERS = 60
MAX_COUNT = 2**40  # bound on each counter of one run, so that sums fit into 64 bits

BRANCHED = "branched"  # end reason of a session that was forked
COMPRESSED = "compression"  # end reason of a session whose agent continued in another one

DERIVED_PREFIX = "api-"  # of session ids that are derived from the beginning of a conversation

_NUMBER = re.compile(r" #[0-9]+$")
_DERIVED = re.compile(rf"{DERIVED_PREFIX}[0-9a-f]{{16}}")


def is_derived(session_id: str) -> bool:
    """Return whether a session id has the form of one derived from how a conversation begins.

    Different people may share such a session, so nothing may be granted in its name.
    """
    return _DERIVED.fullmatch(session_id) is not None


@frozen
class Counters:
    """Totals of a session."""

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
    """A session, without its messages."""

    principal: str
    session_id: str
    kind: str  # the API that created it: chat, responses, runs, sessions
    created_at: float
    updated_at: float  # when a run last began or ended in it
    model: str = ""
    title: str = ""  # unique per principal; "" for none
    system_prompt: str = ""
    preview: str = ""  # start of the first user message
    ended_at: float = 0.0  # 0 while it is open
    end_reason: str = ""
    parent: str = ""  # the session it was forked from or continues
    counters: Counters = NO_COUNTS
    is_pinned: bool = False
    # of a fork before a message: how many messages it took from its parent; else -1
    forked_messages: int = -1


@frozen
class SessionFork:
    """A request to fork a session."""

    principal: str
    source_id: str
    child_id: str
    title: str = ""  # "" for the next numbered one
    now: float = 0.0
    before: int = 0  # number of the first message that is left out; 0 to take all
    model: str = ""  # "" for that of the source


@frozen
class NoSession:
    """The session does not exist, or belongs to another principal."""


@frozen
class SessionExists:
    """A session with this id exists already."""


@frozen
class TitleTaken:
    """Another session has this title."""


@frozen
class SessionBusy:
    """A run is in progress in the session."""


@frozen
class SessionDeleted:
    """The session and its messages were deleted."""


@frozen
class SessionChange:
    """An update of a session. The first end reason wins; "" sets none."""

    sets_title: bool = False
    title: str = ""  # "" removes the title
    end_reason: str = ""
    pins: bool | None = None  # None leaves it as it is


@frozen
class SessionQuery:
    """Filter and page of a list of sessions."""

    limit: int = 50
    offset: int = 0
    kind: str = ""  # "" for all
    include_children: bool = False  # include sessions that were forked or continued
    parent: str = ""  # only those forked from this session, or continuing it; "" for all


@frozen
class SessionPage:
    """One page of sessions, latest activity first."""

    sessions: tuple[Session, ...]
    has_more: bool


@frozen
class StoredMessage:
    """A message at its position in a session."""

    number: int  # counts from 1 in its session
    message: Message
    at: float  # seconds since the epoch
    run_id: str  # the run it belongs to, even if copied from another session


@frozen
class MessagePage:
    """One page of a session's messages, in order."""

    messages: tuple[StoredMessage, ...]
    has_more: bool


@frozen
class MessageSearch:
    """A search for messages that contain all words, in some of a principal's sessions."""

    words: tuple[str, ...]
    offset: int = 0  # sessions to skip, of those with the latest activity first
    sessions: int = 25  # to search at most
    limit: int = 20  # of matches: the session that reaches it is the last one


@frozen
class SearchPage:
    """The matches in a few sessions, latest activity first."""

    found: tuple[tuple[Session, tuple[StoredMessage, ...]], ...]  # only sessions with a match
    searched: int  # sessions
    has_more: bool


EXCERPT_CHARACTERS = 160


def search_words(query: str) -> tuple[str, ...]:
    """Return the words that a message must contain, in any order and case."""
    return tuple(dict.fromkeys(query.lower().split()))


def matches(message: Message, words: Iterable[str]) -> bool:
    """Return whether what a message says contains all the words."""
    text = text_of(message.content, " ").lower()
    return all(word in text for word in words)


def excerpt(message: Message, words: Sequence[str]) -> str:
    """Return the part of a message around the first of the words, on one line."""
    text = " ".join(text_of(message.content, " ").split())
    place = max(0, text.lower().find(words[0]))
    begin = max(0, place - EXCERPT_CHARACTERS // 3) if len(text) > EXCERPT_CHARACTERS else 0
    part = text[begin : begin + EXCERPT_CHARACTERS]
    return f"{'…' if begin else ''}{part}{'…' if begin + len(part) < len(text) else ''}"


def count_run(messages: Iterable[Message], usage: Usage) -> Counters:
    """Return what one run adds to the totals of its session."""
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
    return max(0, min(number, MAX_COUNT))


def build_preview(messages: Iterable[Message]) -> str:
    """Return the start of the first user message with text, in one line; "" if there is none."""
    said = (_text(message.content) for message in messages if message.role == "user")
    return next(filter(None, said), "")


def _text(content: Content) -> str:
    # Only the start is split into words: a pasted file may have millions.
    words = " ".join(text_of(content, " ")[: 50 * PREVIEW_CHARACTERS].split())
    return words if len(words) <= PREVIEW_CHARACTERS else f"{words[: PREVIEW_CHARACTERS - 1]}…"


def base_title(title: str) -> str:
    """Return a title without its number."""
    return _NUMBER.sub("", title)


def next_title(title: str, taken: Container[str]) -> str:
    """Return the first free numbered title.

    ``T #2``, ``T #3``, … for ``T`` or ``T #7``; "" if the title is empty.
    """
    base = base_title(title)
    numbered = (_numbered(base, number) for number in count(2))
    return next(each for each in numbered if each not in taken) if base else ""


def _numbered(base: str, number: int) -> str:
    ending = f" #{number}"
    return f"{base[: MAX_TITLE - len(ending)]}{ending}"


# -- what a front end leaves out --


@frozen
class _MessageExchange:
    """Some messages, and everything that makes up the answer to them."""

    asked: tuple[Message, ...]
    answer: tuple[Message, ...]
    question: str
    shown: frozenset[str]  # what a client may show of the answer: all of its text, or the last part

    @property
    def has_calls(self) -> bool:
        """Whether the answer has tool calls or results."""
        return any(message.role == "tool" or message.tool_calls for message in self.answer)


def restore_tool_calls(said: Iterable[Message], record: Iterable[Message]) -> tuple[Message, ...]:
    """Return a conversation as a client resends it, with the tool calls that its session recorded.

    Front ends resend the text of an answer only. What was said is the client's to decide: it may
    have edited, deleted or regenerated any part. An answer that the record has, in the same order,
    gets its recorded form, with calls and results; everything else stays as the client has it.
    """
    recorded, start = _exchanges(record), 0
    restored: list[Message] = []
    for exchange in _exchanges(said):
        answer = exchange.answer
        if not exchange.has_calls:
            found = _find_recorded(exchange, recorded, start)
            if found >= 0:
                answer, start = recorded[found].answer, found + 1
        restored += (*exchange.asked, *answer)
    return tuple(restored)


def _exchanges(messages: Iterable[Message]) -> list[_MessageExchange]:
    found: list[tuple[list[Message], list[Message]]] = []
    for message in messages:
        is_answer = message.role in {"assistant", "tool"}
        if not found or (found[-1][1] and not is_answer):
            found.append(([], []))
        found[-1][is_answer].append(message)
    return [_exchange(tuple(asked), tuple(answer)) for asked, answer in found]


def _exchange(asked: tuple[Message, ...], answer: tuple[Message, ...]) -> _MessageExchange:
    texts = [_without_whitespace(message) for message in answer if message.role == "assistant"]
    shown = frozenset({"".join(texts), *texts[-1:]}) - {""}
    return _MessageExchange(asked, answer, "".join(map(_without_whitespace, asked)), shown)


def _find_recorded(
    exchange: _MessageExchange, recorded: Sequence[_MessageExchange], start: int
) -> int:
    """Return the position of the recorded form of an exchange, -1 if there is none.

    A front end may wrap a question in a prompt when it asks it, and leave that out later, so a
    different question is tolerated while the answer is unmistakable.
    """
    similar = [
        number
        for number, other in enumerate(recorded[start:], start)
        if not exchange.shown.isdisjoint(other.shown)
    ]
    same = [number for number in similar if recorded[number].question == exchange.question]
    if same:
        return same[0]
    return similar[0] if len(similar) == 1 else -1


def _without_whitespace(message: Message) -> str:
    """Return the text of a message without white space, which front ends change."""
    return "".join(text_of(message.content).split())
