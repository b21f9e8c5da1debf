"""The events of a run as a client hears them: JSON text in, frozen values out.

Events of a kind that is not known yet are kept as :class:`Unknown`: a newer server may say more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from hermes_trio.core.events import Choice


class BadEvent(ValueError):
    """What came is no event of a run."""


@frozen
class Begun:
    """The run is there."""


@frozen
class TextSaid:
    """More of the answer."""

    text: str


@frozen
class Thought:
    """More reasoning."""

    text: str


@frozen
class CallBegan:
    """A tool runs."""

    call_id: str
    tool: str
    preview: str = ""


@frozen
class CallPrinted:
    """A running tool printed something."""

    call_id: str
    text: str


@frozen
class CallOver:
    """A tool has ended, or was cut off."""

    call_id: str
    tool: str
    result: str = ""
    seconds: float = 0.0
    is_error: bool = False
    is_cancelled: bool = False


@frozen
class HandedOver:
    """A call of a tool that the client should run; this client has none."""

    call_id: str
    tool: str
    arguments: str = ""


@frozen
class Question:
    """The agent asks before it does something."""

    approval_id: str
    command: str
    description: str = ""
    choices: tuple[Choice, ...] = tuple(Choice)
    call_id: str = ""


@frozen
class Answered:
    """A question is over."""

    approval_id: str
    choice: str
    by: str = ""


@frozen
class Completed:
    """The run ended well; ``reason`` is there if the agent ran out of tokens or gave up."""

    output: str = ""
    reason: str = ""
    tokens: int = 0


@frozen
class Failed:
    """The run failed."""

    error: str
    reason: str = ""


@frozen
class Cancelled:
    """Somebody stopped the run."""

    reason: str = ""


@frozen
class Unknown:
    """Something else."""

    kind: str


End = Completed | Failed | Cancelled
Body = (
    Begun | TextSaid | Thought | CallBegan | CallPrinted | CallOver | HandedOver | Question | Answered
    | Completed | Failed | Cancelled | Unknown
)  # fmt: skip


@frozen
class Event:
    """One event, its number in the run, and when the server says it happened."""

    seq: int
    timestamp: float
    body: Body


def read_event(text: str) -> Event:
    """Understand the data of one frame.

    Raises:
        BadEvent: it is no JSON object with a number.
    """
    try:
        data = json.loads(text)
    except ValueError:
        raise BadEvent("an event is no JSON") from None
    if not isinstance(data, dict) or type(data.get("seq")) is not int:
        raise BadEvent("an event has no number")
    kind = _text(data, "event")
    read = _READERS.get(kind)
    return Event(data["seq"], _number(data, "timestamp"), read(data) if read else Unknown(kind))


Fields = Mapping[str, Any]


def _text(data: Fields, name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


def _number(data: Fields, name: str) -> float:
    value = data.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _question(data: Fields) -> Question:
    offered = data.get("choices")
    choices = tuple(choice for choice in Choice if isinstance(offered, list) and str(choice) in offered)
    return Question(
        _text(data, "approval_id"),
        _text(data, "command"),
        _text(data, "description"),
        choices or (Choice.ONCE, Choice.DENY),
        _text(data, "toolCallId"),
    )


def _over(data: Fields) -> CallOver:
    return CallOver(
        _text(data, "toolCallId"),
        _text(data, "tool"),
        _text(data, "result"),
        _number(data, "duration"),
        data.get("error") is True,
        data.get("status") == "cancelled",
    )


def _completed(data: Fields) -> Completed:
    usage = data.get("usage")
    tokens = _number(usage, "total_tokens") if isinstance(usage, dict) else 0
    return Completed(_text(data, "output"), _text(data, "reason"), int(tokens))


_READERS: Mapping[str, Callable[[Fields], Body]] = {
    "run.started": lambda _: Begun(),
    "message.delta": lambda data: TextSaid(_text(data, "delta")),
    "reasoning.delta": lambda data: Thought(_text(data, "delta")),
    "tool.started": lambda data: CallBegan(
        _text(data, "toolCallId"), _text(data, "tool"), _text(data, "preview")
    ),
    "tool.output": lambda data: CallPrinted(_text(data, "toolCallId"), _text(data, "delta")),
    "tool.completed": _over,
    "tool.handed_over": lambda data: HandedOver(
        _text(data, "toolCallId"), _text(data, "tool"), _text(data, "arguments")
    ),
    "approval.request": _question,
    "approval.responded": lambda data: Answered(
        _text(data, "approval_id"), _text(data, "choice"), _text(data, "by")
    ),
    "run.completed": _completed,
    "run.failed": lambda data: Failed(_text(data, "error"), _text(data, "reason")),
    "run.cancelled": lambda data: Cancelled(_text(data, "reason")),
}
