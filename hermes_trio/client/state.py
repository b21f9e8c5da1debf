"""What a person sees of a run: a pure function of the events so far.

Every event counts once: one whose number is not above the last is a repetition and changes nothing. So a stream that was
picked up again, at whatever point, leads to the same view as one that never broke.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from functools import reduce
from typing import Any

from attrs import evolve, frozen

from hermes_trio.client.events import (
    Answered,
    Body,
    CallBegan,
    CallOver,
    CallPrinted,
    Cancelled,
    Completed,
    End,
    Event,
    Failed,
    HandedOver,
    Question,
    TextSaid,
    Thought,
)

PRINTED_CHARACTERS = 4_000  # of what a running tool prints the end is kept, and no more


@frozen
class Said:
    """A stretch of the answer."""

    text: str


@frozen
class Mused:
    """A stretch of reasoning."""

    text: str


class CardState(StrEnum):
    """Where a call stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    HANDED_OVER = "handed over"


@frozen
class Card:
    """One call of a tool."""

    call_id: str
    tool: str
    preview: str = ""
    began: float = 0.0  # by the server's clock
    printed: str = ""
    state: CardState = CardState.RUNNING
    result: str = ""
    seconds: float = 0.0


@frozen
class Settled:
    """A question and its answer."""

    question: Question
    choice: str
    by: str


Block = Said | Mused | Card | Settled


@frozen
class Running:
    """The run has not ended."""


@frozen
class View:
    """All there is to see of a run."""

    seq: int = -1  # of the last event
    blocks: tuple[Block, ...] = ()
    questions: tuple[Question, ...] = ()  # that wait, the oldest first
    end: Running | End = Running()
    offset: float = math.inf  # seconds that our clock seems to be ahead of the server's

    @property
    def text(self) -> str:
        """The answer, without what happened in between."""
        return "".join(block.text for block in self.blocks if isinstance(block, Said))

    @property
    def is_over(self) -> bool:
        """Whether nothing can follow."""
        return not isinstance(self.end, Running)

    def elapsed(self, card: Card, now: float) -> float:
        """How long a card has been running, in seconds of our clock. Both clocks need not agree."""
        return max(0.0, now - self.offset - card.began) if math.isfinite(self.offset) else 0.0


EMPTY = View()


def step(view: View, event: Event, now: float) -> View:
    """The view after one more event, heard at a time of our clock."""
    if event.seq <= view.seq or view.is_over:
        return view
    # What is replayed is heard late, so the shortest way of all events tells most about the clocks.
    heard = evolve(view, seq=event.seq, offset=min(view.offset, now - event.timestamp))
    handle = _HANDLERS.get(type(event.body))
    return handle(heard, event.body, event.timestamp) if handle else heard


def _say(view: View, body: TextSaid, _at: float) -> View:
    return _grown(view, Said, body.text)


def _muse(view: View, body: Thought, _at: float) -> View:
    return _grown(view, Mused, body.text)


def _grown(view: View, kind: type[Said | Mused], text: str) -> View:
    """Text that follows text of its kind makes it longer."""
    last = view.blocks[-1] if view.blocks else None
    if not text:
        return view
    if type(last) is kind:
        return evolve(view, blocks=(*view.blocks[:-1], kind(last.text + text)))
    return evolve(view, blocks=(*view.blocks, kind(text)))


def _began(view: View, body: CallBegan, at: float) -> View:
    return _carded(view, body.call_id, body.tool, lambda card: evolve(card, preview=body.preview, began=at))


def _printed(view: View, body: CallPrinted, _at: float) -> View:
    def print_more(card: Card) -> Card:
        return evolve(card, printed=(card.printed + body.text)[-PRINTED_CHARACTERS:])

    return _carded(view, body.call_id, "", print_more)


def _over(view: View, body: CallOver, _at: float) -> View:
    state = CardState.FAILED if body.is_error else CardState.DONE
    state = CardState.CANCELLED if body.is_cancelled else state
    return _carded(
        view,
        body.call_id,
        body.tool,
        lambda card: evolve(card, state=state, result=body.result, seconds=body.seconds),
    )


def _handed_over(view: View, body: HandedOver, _at: float) -> View:
    return _carded(
        view,
        body.call_id,
        body.tool,
        lambda card: evolve(card, state=CardState.HANDED_OVER, preview=body.arguments),
    )


def _carded(view: View, call_id: str, tool: str, change: Callable[[Card], Card]) -> View:
    """Change the card of a call; a call that nobody heard of before gets one."""
    for place in reversed(range(len(view.blocks))):
        block = view.blocks[place]
        if isinstance(block, Card) and block.call_id == call_id:
            return evolve(view, blocks=(*view.blocks[:place], change(block), *view.blocks[place + 1 :]))
    return evolve(view, blocks=(*view.blocks, change(Card(call_id, tool))))


def _asked(view: View, body: Question, _at: float) -> View:
    return evolve(view, questions=(*_others(view, body.approval_id), body))


def _answered(view: View, body: Answered, _at: float) -> View:
    about = [question for question in view.questions if question.approval_id == body.approval_id]
    settled = [Settled(question, body.choice, body.by) for question in about]
    return evolve(view, questions=_others(view, body.approval_id), blocks=(*view.blocks, *settled))


def _others(view: View, approval_id: str) -> tuple[Question, ...]:
    return tuple(question for question in view.questions if question.approval_id != approval_id)


def _ended(view: View, body: End, _at: float) -> View:
    """Nothing is left open, even if the events that tell so are missing."""
    return evolve(view, end=body, questions=(), blocks=tuple(map(_closed, view.blocks)))


def _closed(block: Block) -> Block:
    if isinstance(block, Card) and block.state is CardState.RUNNING:
        return evolve(block, state=CardState.CANCELLED)
    return block


_HANDLERS: dict[type[Body], Callable[[View, Any, float], View]] = {
    TextSaid: _say,
    Thought: _muse,
    CallBegan: _began,
    CallPrinted: _printed,
    CallOver: _over,
    HandedOver: _handed_over,
    Question: _asked,
    Answered: _answered,
    Completed: _ended,
    Failed: _ended,
    Cancelled: _ended,
}


def replayed(events: tuple[Event, ...], now: float = 0.0) -> View:
    """The view after all of some events."""
    return reduce(lambda view, event: step(view, event, now), events, EMPTY)


def exit_code(view: View) -> int:
    """What a script is told: 0 completed, 130 stopped, 1 anything else."""
    match view.end:
        case Completed():
            return 0
        case Cancelled():
            return 130
        case _:
            return 1
