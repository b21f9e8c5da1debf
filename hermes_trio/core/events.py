"""What an agent can say while it works. Each event is one frozen value; times are seconds since the run began."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from operator import is_
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
class ToolNoticed:
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
class ApprovalWanted:
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
class Crashed:
    """The agent raised."""

    message: str
    kind: str = "agent_error"  # the class name of the exception
    at: float = 0.0


Event = (
    Text
    | Reasoning
    | ToolStarted
    | ToolNoticed
    | ToolOutput
    | ToolCompleted
    | ClientCall
    | ApprovalWanted
    | ApprovalAnswered
    | Finished
    | Crashed
)


Said = Event | str  # a str is a piece of the answer, on its way to become a Text


def heard(said: Iterable[Said]) -> list[Event]:
    """Events only: neighbouring pieces of the answer become one."""
    events: list[Event] = []
    for kind, run in groupby(said, key=type):
        if kind is str:
            events.append(Text("".join(run)))  # type: ignore[arg-type]  # all of the run are
        else:
            events += run  # type: ignore[arg-type]  # none of the run is
    return events


def merge_text(events: Sequence[Event]) -> Sequence[Event]:
    """Join neighbouring pieces of text, so that one change and one frame carry all that waited."""
    if len(events) == 1:  # mostly, where nobody is behind
        return events
    kinds = list(map(type, events))
    if not any(map(is_, kinds, kinds[1:])):  # nor is there anything to join
        return events
    merged: list[Event] = []
    for kind, run in groupby(events, key=type):
        if kind is Text:
            merged.append(Text("".join(event.text for event in run if isinstance(event, Text))))
        elif kind is Reasoning:
            merged.append(Reasoning("".join(event.text for event in run if isinstance(event, Reasoning))))
        elif kind is ToolOutput:
            merged.extend(_merged_output(event for event in run if isinstance(event, ToolOutput)))
        else:
            merged.extend(run)
    return merged


def _merged_output(events: Iterable[ToolOutput]) -> Iterator[ToolOutput]:
    for call_id, run in groupby(events, key=lambda event: event.call_id):
        yield ToolOutput(call_id, "".join(event.text for event in run))
