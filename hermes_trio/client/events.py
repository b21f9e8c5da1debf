"""The events of a run as a client receives them: an SSE stream in, frozen values out.

Events of an unknown kind are kept as :class:`UnknownEvent`, because a newer server may send more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from hermes_trio.core.events import Choice


class InvalidEvent(ValueError):
    """The data of a frame is not an event of a run."""


@frozen
class StreamStarted:
    """The run has started."""


@frozen
class TextDelta:
    """A piece of the answer."""

    text: str


@frozen
class ReasoningDelta:
    """A piece of reasoning."""

    text: str


@frozen
class ToolCallStarted:
    """A tool call starts."""

    call_id: str
    tool: str
    preview: str = ""


@frozen
class ToolCallOutput:
    """Output of a running tool call."""

    call_id: str
    text: str


@frozen
class ToolCallEnded:
    """A tool call ended, or was cancelled."""

    call_id: str
    tool: str
    result: str = ""
    seconds: float = 0.0
    is_error: bool = False
    is_cancelled: bool = False


@frozen
class ToolCallHandedOver:
    """A call of a client tool. This client has none."""

    call_id: str
    tool: str
    arguments: str = ""


@frozen
class ApprovalPrompt:
    """An approval request of the agent."""

    approval_id: str
    command: str
    description: str = ""
    choices: tuple[Choice, ...] = tuple(Choice)
    call_id: str = ""


@frozen
class ApprovalClosed:
    """An approval request was decided."""

    approval_id: str
    choice: str
    by: str = ""


@frozen
class RunCompleted:
    """The run completed. ``reason`` is set if the agent ran out of tokens or gave up."""

    output: str = ""
    reason: str = ""
    tokens: int = 0


@frozen
class RunFailed:
    """The run failed."""

    error: str
    reason: str = ""


@frozen
class RunCancelled:
    """The run was stopped."""

    reason: str = ""


@frozen
class UnknownEvent:
    """An event of an unknown kind."""

    kind: str


RunEnd = RunCompleted | RunFailed | RunCancelled
Body = (
    StreamStarted | TextDelta | ReasoningDelta | ToolCallStarted | ToolCallOutput | ToolCallEnded | ToolCallHandedOver | ApprovalPrompt | ApprovalClosed
    | RunCompleted | RunFailed | RunCancelled | UnknownEvent
)  # fmt: skip


@frozen
class StreamEvent:
    """An event with its number in the run and the server's time."""

    seq: int
    timestamp: float
    body: Body


def read_event(text: str) -> StreamEvent:
    """Parse the data of one frame.

    Raises:
        InvalidEvent: it is not a JSON object with a number.
    """
    try:
        data = json.loads(text)
    except ValueError:
        raise InvalidEvent("an event is no JSON") from None
    if not isinstance(data, dict) or type(data.get("seq")) is not int:
        raise InvalidEvent("an event has no number")
    kind = _text(data, "event")
    read = _READERS.get(kind)
    return StreamEvent(
        data["seq"], _number(data, "timestamp"), read(data) if read else UnknownEvent(kind)
    )


Fields = Mapping[str, Any]


def _text(data: Fields, name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


def _number(data: Fields, name: str) -> float:
    value = data.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _question(data: Fields) -> ApprovalPrompt:
    offered = data.get("choices")
    choices = tuple(
        choice for choice in Choice if isinstance(offered, list) and str(choice) in offered
    )
    return ApprovalPrompt(
        _text(data, "approval_id"),
        _text(data, "command"),
        _text(data, "description"),
        choices or (Choice.ONCE, Choice.DENY),
        _text(data, "toolCallId"),
    )


def _over(data: Fields) -> ToolCallEnded:
    return ToolCallEnded(
        _text(data, "toolCallId"),
        _text(data, "tool"),
        _text(data, "result"),
        _number(data, "duration"),
        data.get("error") is True,
        data.get("status") == "cancelled",
    )


def _completed(data: Fields) -> RunCompleted:
    usage = data.get("usage")
    tokens = _number(usage, "total_tokens") if isinstance(usage, dict) else 0
    return RunCompleted(_text(data, "output"), _text(data, "reason"), int(tokens))


_READERS: Mapping[str, Callable[[Fields], Body]] = {
    "run.started": lambda _: StreamStarted(),
    "message.delta": lambda data: TextDelta(_text(data, "delta")),
    "reasoning.delta": lambda data: ReasoningDelta(_text(data, "delta")),
    "tool.started": lambda data: ToolCallStarted(
        _text(data, "toolCallId"), _text(data, "tool"), _text(data, "preview")
    ),
    "tool.output": lambda data: ToolCallOutput(_text(data, "toolCallId"), _text(data, "delta")),
    "tool.completed": _over,
    "tool.handed_over": lambda data: ToolCallHandedOver(
        _text(data, "toolCallId"), _text(data, "tool"), _text(data, "arguments")
    ),
    "approval.request": _question,
    "approval.responded": lambda data: ApprovalClosed(
        _text(data, "approval_id"), _text(data, "choice"), _text(data, "by")
    ),
    "run.completed": _completed,
    "run.failed": lambda data: RunFailed(_text(data, "error"), _text(data, "reason")),
    "run.cancelled": lambda data: RunCancelled(_text(data, "reason")),
}


MAX_FRAME_BYTES = 1_000_000
_LINE_END = re.compile(rb"\r\n|\n|\r(?!$)")  # a \r at the very end may be half of a \r\n


class FrameTooLong(ValueError):
    """A frame is longer than any that the server sends."""


class SseParser:
    """Parses server-sent events from chunks of bytes. An incomplete frame at the end is dropped."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[str]:
        """Return the data of all frames that are complete now.

        Raises:
            FrameTooLong: a frame is too long.
        """
        *lines, self._rest = _LINE_END.split(self._rest + chunk)
        found = []
        for line in lines:
            name, _, value = line.partition(b":")
            if name == b"data":  # ids are ignored, because the data holds the numbers too
                self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
                self._size += len(value)
            elif not line:
                if self._data:
                    found.append("\n".join(self._data))
                self._data, self._size = [], 0
        if len(self._rest) + self._size > MAX_FRAME_BYTES:
            raise FrameTooLong("an event of the server has no end")
        return found
