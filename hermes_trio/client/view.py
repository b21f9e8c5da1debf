"""The view of a run: a pure function of the events so far.

Every event counts once: one whose number is not above the last is a repetition and changes nothing.
So a stream that was resumed, at whatever point, leads to the same view as one that never broke.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import StrEnum
from functools import reduce
from typing import Any

from attrs import evolve, frozen

from hermes_trio.client.events import (
    ApprovalClosed,
    ApprovalPrompt,
    Body,
    ReasoningDelta,
    RunCancelled,
    RunCompleted,
    RunEnd,
    RunFailed,
    StreamEvent,
    TextDelta,
    ToolCallEnded,
    ToolCallHandedOver,
    ToolCallOutput,
    ToolCallStarted,
)

MAX_OUTPUT_CHARS = 4_000  # of a running tool's output; the end is kept


@frozen
class TextBlock:
    """A part of the answer."""

    text: str


@frozen
class ReasoningBlock:
    """A part of the reasoning."""

    text: str


class CardState(StrEnum):
    """The state of a tool call."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    HANDED_OVER = "handed over"


@frozen
class ToolCard:
    """A tool call."""

    call_id: str
    tool: str
    preview: str = ""
    began: float = 0.0  # by the server's clock
    printed: str = ""
    state: CardState = CardState.RUNNING
    result: str = ""
    seconds: float = 0.0


@frozen
class ApprovalBlock:
    """An approval request and its decision."""

    question: ApprovalPrompt
    choice: str
    by: str


Block = TextBlock | ReasoningBlock | ToolCard | ApprovalBlock


@frozen
class InProgress:
    """The run has not ended."""


@frozen
class View:
    """Everything that is displayed of a run."""

    seq: int = -1  # of the last event
    blocks: tuple[Block, ...] = ()
    questions: tuple[ApprovalPrompt, ...] = ()  # open, the oldest first
    end: InProgress | RunEnd = InProgress()
    offset: float = math.inf  # estimated seconds that our clock is ahead of the server's

    @property
    def text(self) -> str:
        """The answer, without reasoning and tool calls."""
        return "".join(block.text for block in self.blocks if isinstance(block, TextBlock))

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return not isinstance(self.end, InProgress)

    def elapsed(self, card: ToolCard, now: float) -> float:
        """Return how long a call has been running, in seconds. The two clocks may disagree."""
        return max(0.0, now - self.offset - card.began) if math.isfinite(self.offset) else 0.0


EMPTY_VIEW = View()


def apply_event(view: View, event: StreamEvent, now: float) -> View:
    """Return the view after one more event, received at a time of our clock."""
    if event.seq <= view.seq or view.is_over:
        return view
    # Replayed events arrive late, so the smallest difference is the best estimate of the offset.
    seen = evolve(view, seq=event.seq, offset=min(view.offset, now - event.timestamp))
    handle = _HANDLERS.get(type(event.body))
    return handle(seen, event.body, event.timestamp) if handle else seen


def _add_text(view: View, body: TextDelta, _at: float) -> View:
    return _with_text(view, TextBlock, body.text)


def _add_reasoning(view: View, body: ReasoningDelta, _at: float) -> View:
    return _with_text(view, ReasoningBlock, body.text)


def _with_text(view: View, kind: type[TextBlock | ReasoningBlock], text: str) -> View:
    """Append text to the last block if that is of the same kind."""
    last = view.blocks[-1] if view.blocks else None
    if not text:
        return view
    if type(last) is kind:
        return evolve(view, blocks=(*view.blocks[:-1], kind(last.text + text)))
    return evolve(view, blocks=(*view.blocks, kind(text)))


def _start_call(view: View, body: ToolCallStarted, at: float) -> View:
    return _with_card(
        view, body.call_id, body.tool, lambda card: evolve(card, preview=body.preview, began=at)
    )


def _add_output(view: View, body: ToolCallOutput, _at: float) -> View:
    def print_more(card: ToolCard) -> ToolCard:
        return evolve(card, printed=(card.printed + body.text)[-MAX_OUTPUT_CHARS:])

    return _with_card(view, body.call_id, "", print_more)


def _end_call(view: View, body: ToolCallEnded, _at: float) -> View:
    state = CardState.FAILED if body.is_error else CardState.DONE
    state = CardState.CANCELLED if body.is_cancelled else state
    return _with_card(
        view,
        body.call_id,
        body.tool,
        lambda card: evolve(card, state=state, result=body.result, seconds=body.seconds),
    )


def _hand_over_call(view: View, body: ToolCallHandedOver, _at: float) -> View:
    return _with_card(
        view,
        body.call_id,
        body.tool,
        lambda card: evolve(card, state=CardState.HANDED_OVER, preview=body.arguments),
    )


def _with_card(view: View, call_id: str, tool: str, change: Callable[[ToolCard], ToolCard]) -> View:
    """Change the card of a call; an unknown call gets a new card."""
    for index in reversed(range(len(view.blocks))):
        block = view.blocks[index]
        if isinstance(block, ToolCard) and block.call_id == call_id:
            return evolve(
                view, blocks=(*view.blocks[:index], change(block), *view.blocks[index + 1 :])
            )
    return evolve(view, blocks=(*view.blocks, change(ToolCard(call_id, tool))))


def _open_question(view: View, body: ApprovalPrompt, _at: float) -> View:
    return evolve(view, questions=(*_without_question(view, body.approval_id), body))


def _close_question(view: View, body: ApprovalClosed, _at: float) -> View:
    decided = [
        ApprovalBlock(question, body.choice, body.by)
        for question in view.questions
        if question.approval_id == body.approval_id
    ]
    return evolve(
        view, questions=_without_question(view, body.approval_id), blocks=(*view.blocks, *decided)
    )


def _without_question(view: View, approval_id: str) -> tuple[ApprovalPrompt, ...]:
    return tuple(question for question in view.questions if question.approval_id != approval_id)


def _end_run(view: View, body: RunEnd, _at: float) -> View:
    """Close everything that is open, even if its events are missing."""
    return evolve(view, end=body, questions=(), blocks=tuple(map(_closed_block, view.blocks)))


def _closed_block(block: Block) -> Block:
    if isinstance(block, ToolCard) and block.state is CardState.RUNNING:
        return evolve(block, state=CardState.CANCELLED)
    return block


_HANDLERS: dict[type[Body], Callable[[View, Any, float], View]] = {
    TextDelta: _add_text,
    ReasoningDelta: _add_reasoning,
    ToolCallStarted: _start_call,
    ToolCallOutput: _add_output,
    ToolCallEnded: _end_call,
    ToolCallHandedOver: _hand_over_call,
    ApprovalPrompt: _open_question,
    ApprovalClosed: _close_question,
    RunCompleted: _end_run,
    RunFailed: _end_run,
    RunCancelled: _end_run,
}


def replay_events(events: tuple[StreamEvent, ...], now: float = 0.0) -> View:
    """Return the view after a sequence of events."""
    return reduce(lambda view, event: apply_event(view, event, now), events, EMPTY_VIEW)


def exit_code(view: View) -> int:
    """Return the exit code: 0 if completed, 130 if stopped, else 1."""
    match view.end:
        case RunCompleted():
            return 0
        case RunCancelled():
            return 130
        case _:
            return 1


@frozen
class PrintPosition:
    """How far a view has been printed: all blocks before one, and some characters of that one."""

    block: int = 0
    character: int = 0


START = PrintPosition()


@frozen
class PrintSplit:
    """The blocks of a view that can be printed for good, and those that may change."""

    printed: tuple[Block, ...]  # since the last position
    rest: tuple[Block, ...]
    mark: PrintPosition


def split_blocks(view: View, mark: PrintPosition = START) -> PrintSplit:
    """Split what has not been printed yet. A running call holds back everything after it."""
    printed: list[Block] = []
    while mark.block < len(view.blocks):
        block = view.blocks[mark.block]
        if isinstance(block, ToolCard) and block.state is CardState.RUNNING:
            break
        can_grow = mark.block == len(view.blocks) - 1 and not view.is_over
        if can_grow and isinstance(block, TextBlock | ReasoningBlock):
            end = mark.character + stable_prefix(block.text[mark.character :])
            printed += _part(block, mark.character, end)
            mark = PrintPosition(mark.block, end)
            break
        printed += _part(block, mark.character)
        mark = PrintPosition(mark.block + 1)
    first, *others = view.blocks[mark.block :] or (TextBlock(""),)
    return PrintSplit(tuple(printed), (*_part(first, mark.character), *others), mark)


def _part(block: Block, begin: int, end: int | None = None) -> list[Block]:
    """Return a part of a text block unless it is blank; other blocks are not divided."""
    match block:
        case TextBlock(text):
            return [TextBlock(text[begin:end])] if text[begin:end].strip() else []
        case ReasoningBlock(text):
            return [ReasoningBlock(text[begin:end])] if text[begin:end].strip() else []
        case _:
            return [block]


_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)


def stable_prefix(text: str) -> int:
    """Return how many characters at the start of a Markdown text will look the same when more text follows.

    They end with a complete paragraph, and never inside a code block.
    """
    end, fence, place = 0, "", 0
    for line in text.splitlines(keepends=True):
        place += len(line)
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence):  # a fence is closed by one of its kind that is as long
                fence = ""
        elif not fence and not line.strip() and line.endswith("\n"):
            end = place
    return end
