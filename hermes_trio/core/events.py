"""The events an agent emits.

Each is one frozen value; times (``at``) are seconds since the run began.
"""

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
    """A piece of reasoning, shown apart from the answer."""

    text: str


@frozen
class ToolStarted:
    """A tool call starts. ``call_id`` links it to its completion."""

    call_id: str
    name: str
    args: Mapping[str, Any] = field(factory=dict)
    at: float = 0.0


@frozen
class ToolAnnounced:
    """A tool call starts, reported by a source that has no call ids and does not report the end."""

    name: str
    args: Mapping[str, Any] = field(factory=dict)
    at: float = 0.0
    # Under which to show the call; made up, so two equal announcements may differ in it.
    call_id: str = field(default="", eq=False)


@frozen
class ToolOutput:
    """A piece of output of a running call."""

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
    """The agent calls a tool that the client provides.

    The server does not run it: the call is part of the answer.
    """

    call_id: str
    name: str
    arguments: str = "{}"  # JSON text, as the model wrote it


class Choice(StrEnum):
    """The answers to an approval request."""

    ONCE = "once"
    SESSION = "session"  # also for matching requests later in the session
    ALWAYS = "always"
    DENY = "deny"


class AnsweredBy(StrEnum):
    """What resolved an approval request."""

    CLIENT = "client"
    REMEMBERED = "remembered"  # by an earlier answer; clients do not see the request
    TIMEOUT = "timeout"
    NOBODY = "nobody"  # the route cannot ask a client
    RUN_ENDED = "run_ended"
    DEFERRED = "deferred"  # the run ended with the request; the next one has the answer


@frozen
class ApprovalRequest:
    """The agent asks for permission and waits for the answer."""

    approval_id: str
    call_id: str  # the tool call it belongs to, "" for none
    command: str
    description: str = ""
    patterns: tuple[str, ...] = ()  # the keys under which a lasting answer is remembered
    allow_permanent: bool = True
    seconds: float = 0.0  # time allowed for the answer
    at: float = 0.0


@frozen
class ApprovalAnswered:
    """An approval request is granted or denied."""

    approval_id: str
    choice: Choice
    by: AnsweredBy
    at: float = 0.0


class Verdict(StrEnum):
    """How the agent itself judges its turn."""

    COMPLETED = "completed"
    TRUNCATED = "truncated"  # the model ran out of output tokens
    INCOMPLETE = "incomplete"  # it gave up before it was done
    INTERRUPTED = "interrupted"  # it stopped when interrupted
    FAILED = "failed"


@frozen
class Result:
    """What an agent returns at the end of its turn."""

    text: str = ""  # the final answer; may repeat text that was streamed
    verdict: Verdict = Verdict.COMPLETED
    error: str = ""
    usage: Usage = NO_USAGE
    session_id: str = ""  # set if the agent continued in another session


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


EventOrText = Event | str  # a str stands for Text(str): queues carry most text that way


def coalesce(events: Sequence[EventOrText]) -> list[Event]:
    """Merge adjacent pieces of text, reasoning, or output of one call, so that each becomes a single change."""
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
