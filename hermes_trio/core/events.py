"""What an agent can say while it works. Each event is one frozen value; times are seconds since the run began."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from typing import Any

from attrs import field, frozen

from hermes_trio.core.messages import NO_USAGE, Usage


@frozen
class Text:
    """A piece of the visible answer."""

    text: str


@frozen
class Reasoning:
    """A piece of thinking that is shown apart from the answer."""

    text: str


@frozen
class ToolStarted:
    """A tool call begins. The id ties it to its end."""

    call_id: str
    name: str
    args: Mapping[str, Any] = field(factory=dict)
    at: float = 0.0


@frozen
class ToolAnnounced:
    """A tool call begins, told by a producer that has no call ids and will not tell the end."""

    name: str
    args: Mapping[str, Any] = field(factory=dict)
    at: float = 0.0


@frozen
class ToolOutput:
    """A piece of output of a call that still runs."""

    call_id: str
    text: str


@frozen
class ToolCompleted:
    """A tool call ends."""

    call_id: str
    result: str = ""
    is_error: bool = False
    at: float = 0.0


@frozen
class ClientCall:
    """The agent calls a tool of the client's. Nobody runs it here: it is part of the answer."""

    call_id: str
    name: str
    arguments: str = "{}"  # the JSON text, as the model wrote it


class Choice(StrEnum):
    """The answers to the wish of an agent."""

    ONCE = "once"
    SESSION = "session"  # this and its like, for as long as the session lasts
    ALWAYS = "always"
    DENY = "deny"


class AnsweredBy(StrEnum):
    """Who answered."""

    CLIENT = "client"
    REMEMBERED = "remembered"  # an earlier answer holds; the question is not even shown
    TIMEOUT = "timeout"
    NOBODY = "nobody"  # there is no one to ask on this route
    RUN_ENDED = "run_ended"


@frozen
class ApprovalRequest:
    """The agent wants to do something that somebody has to allow, and waits."""

    approval_id: str
    call_id: str  # the tool call it belongs to, if any
    command: str
    description: str = ""
    patterns: tuple[str, ...] = ()  # what an answer for longer than once is remembered by
    allow_permanent: bool = True
    seconds: float = 0.0  # how long there is to answer
    at: float = 0.0


@frozen
class ApprovalAnswered:
    """The wish is granted or denied."""

    approval_id: str
    choice: Choice
    by: AnsweredBy
    at: float = 0.0


class Verdict(StrEnum):
    """What the agent itself says of its turn."""

    COMPLETED = "completed"
    TRUNCATED = "truncated"  # the model ran out of output tokens
    INCOMPLETE = "incomplete"  # it gave up in the middle
    INTERRUPTED = "interrupted"  # it obeyed an interrupt
    FAILED = "failed"


@frozen
class Result:
    """What an agent returns at the end of its turn."""

    text: str = ""  # the final answer; may repeat what was streamed
    verdict: Verdict = Verdict.COMPLETED
    error: str = ""
    usage: Usage = NO_USAGE
    session_id: str = ""  # set when the agent moved on to another session


EMPTY_RESULT = Result()


@frozen
class Finished:
    """The agent returned."""

    result: Result = EMPTY_RESULT
    at: float = 0.0


@frozen
class AgentFailed:
    """The agent raised."""

    message: str
    kind: str = "agent_error"  # the class name of the exception
    at: float = 0.0


Event = (
    Text
    | Reasoning
    | ToolStarted
    | ToolAnnounced
    | ToolOutput
    | ToolCompleted
    | ClientCall
    | ApprovalRequest
    | ApprovalAnswered
    | Finished
    | AgentFailed
)


EventOrText = Event | str  # a str is a piece of the answer that has not become a Text yet


def coalesce(events: Sequence[EventOrText]) -> list[Event]:
    """Join adjacent pieces of text, of reasoning and of one tool's output, so that one change carries each."""
    joined: list[Event] = []
    for kind, adjacent in groupby(events, key=type):
        if kind is str:
            joined.append(Text("".join(adjacent)))  # type: ignore[arg-type]  # all of them are str
        elif kind is Text:
            joined.append(Text(_joined_text(adjacent)))
        elif kind is Reasoning:
            joined.append(Reasoning(_joined_text(adjacent)))
        elif kind is ToolOutput:
            for call_id, output in groupby(adjacent, key=attrgetter("call_id")):
                joined.append(ToolOutput(call_id, _joined_text(output)))
        else:
            joined.extend(adjacent)  # type: ignore[arg-type]  # none of them is a str
    return joined


def _joined_text(events: Iterable[Any]) -> str:
    return "".join([event.text for event in events])
