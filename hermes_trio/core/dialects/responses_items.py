"""The items of a response: how each looks while it is in the making and when it is done.

A slot is one place in the ``output`` of a response. Its id is a hash of the run's id and of the place that the item has in
the turn, so a stream that is rendered again, anywhere, carries the same ids.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any

from attrs import define, field, frozen

from hermes_trio.core.changes import (
    CallEnded,
    CallStarted,
    Change,
    ClientToolCalled,
    Ended,
    ReasoningAdded,
    TextAdded,
)
from hermes_trio.core.dialects.wire import encode
from hermes_trio.core.messages import CallItem, ClientCallItem, Item, MessageItem, ReasoningItem
from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.core.state import CallState

OutputItem = dict[str, Any]


class ItemStatus(StrEnum):
    """Where an item stands."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"


class ResultForm(StrEnum):
    """How the result of a tool call is written."""

    PARTS = "parts"  # a list of input_text parts: the only form that Open WebUI can show, so streams have it
    TEXT = "text"  # a plain string, as the OpenAI specification has it


def item_id(prefix: str, run_id: str, place: int | str) -> str:
    """The id of an item, the same whenever it is asked for."""
    digest = hashlib.sha256(f"{run_id}\n{prefix}\n{place}".encode("utf-8", "surrogatepass"))
    return f"{prefix}_{digest.hexdigest()[:24]}"


def text_part(text: str) -> OutputItem:
    """The content of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def summary_part(text: str) -> OutputItem:
    """The content of a reasoning item."""
    return {"type": "summary_text", "text": text}


def input_text(text: str) -> OutputItem:
    """A text that goes to the model: what a user said, what a tool returned."""
    return {"type": "input_text", "text": text}


@define(eq=False)
class _GrowingSlot:
    """What grows piece by piece."""

    index: int
    item_id: str
    pieces: list[str] = field(factory=list)
    status: ItemStatus = ItemStatus.IN_PROGRESS

    @property
    def text(self) -> str:
        """All of it so far."""
        return "".join(self.pieces)


@define(eq=False)
class MessageSlot(_GrowingSlot):
    """Visible text between two tool rounds."""

    def opened(self) -> OutputItem:
        """The item before its first text."""
        return self._with([])

    def shown(self, form: ResultForm) -> OutputItem:  # noqa: ARG002 - only results have two forms
        """The item as it stands."""
        return self._with([text_part(self.text)])

    def _with(self, content: list[OutputItem]) -> OutputItem:
        return {
            "id": self.item_id,
            "type": "message",
            "status": str(self.status),
            "role": "assistant",
            "content": content,
        }


@define(eq=False)
class ReasoningSlot(_GrowingSlot):
    """Thinking between two other items."""

    def opened(self) -> OutputItem:
        """The item before its first text."""
        return self._with([])

    def shown(self, form: ResultForm) -> OutputItem:  # noqa: ARG002 - only results have two forms
        """The item as it stands."""
        return self._with([summary_part(self.text)])

    def _with(self, summary: list[OutputItem]) -> OutputItem:
        return {"id": self.item_id, "type": "reasoning", "status": str(self.status), "summary": summary}


@define(eq=False)
class CallSlot:
    """A tool call. It is done when the tool is, so that a client's card spins until then."""

    index: int
    item_id: str
    call_id: str
    name: str
    arguments: str  # JSON text
    status: ItemStatus = ItemStatus.IN_PROGRESS

    def opened(self) -> OutputItem:
        """The item before its arguments: helpers add them up from the deltas."""
        return self._with("")

    def shown(self, form: ResultForm) -> OutputItem:  # noqa: ARG002 - only results have two forms
        """The item as it stands."""
        return self._with(self.arguments)

    def _with(self, arguments: str) -> OutputItem:
        return {
            "id": self.item_id,
            "type": "function_call",
            "status": str(self.status),
            "name": self.name,
            "call_id": self.call_id,
            "arguments": arguments,
        }


@define(eq=False)
class ResultSlot:
    """What a tool call returned. Never shortened."""

    index: int
    item_id: str
    call_id: str
    output: str
    status: ItemStatus

    def opened(self) -> OutputItem:
        """The whole item: clients of today's server read it as soon as it is added."""
        return self.shown(ResultForm.PARTS)

    def shown(self, form: ResultForm) -> OutputItem:
        """The item."""
        output = self.output if form is ResultForm.TEXT else [input_text(self.output)]
        return {
            "id": self.item_id,
            "type": "function_call_output",
            "status": str(self.status),
            "call_id": self.call_id,
            "output": output,
        }


Prose = MessageSlot | ReasoningSlot
Slot = MessageSlot | ReasoningSlot | CallSlot | ResultSlot


@frozen
class ItemAdded:
    """An item took its place."""

    slot: Slot


@frozen
class ItemDelta:
    """A message or reasoning item got more text."""

    slot: Prose
    text: str


@frozen
class ItemDone:
    """An item is done."""

    slot: Slot


Step = ItemAdded | ItemDelta | ItemDone


class Output:
    """The items of one response."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._slots: list[Slot] = []
        self._prose: dict[int, Prose] = {}  # the open one, by its place in the turn; at most one
        self._calls: dict[int, CallSlot] = {}  # the running ones

    def items(self, form: ResultForm) -> list[OutputItem]:
        """All items as they stand."""
        return [slot.shown(form) for slot in self._slots]

    def take(self, change: Change) -> Iterator[Step]:
        """Feed one change; what it does to the output happens as the steps are drawn."""
        match change:
            case TextAdded(item, text) | ReasoningAdded(item, text):
                yield from self._write(
                    item, text, MessageSlot if type(change) is TextAdded else ReasoningSlot
                )
            case CallStarted():
                yield from self._start(change)
            case CallEnded():
                yield from self._finish(change)
            case ClientToolCalled():
                yield from self._hand_over(change)
            case Ended(outcome):
                yield from self._abandon_calls()
                yield from self._close_prose(_last_status(outcome))
            case _:
                pass  # live output of a call: the standard has no event for it

    def grow(self, change: TextAdded) -> Prose | None:
        """The short way for most changes there are: more text of the open message. Nothing happens if it is not that."""
        slot = self._prose.get(change.item)
        if slot is not None:
            slot.pieces.append(change.text)
        return slot

    def take_all(self, changes: Iterable[Change]) -> None:
        """Feed some changes and look only at the result."""
        for change in changes:
            for _ in self.take(change):
                pass

    def _write(self, item: int, text: str, kind: type[Prose]) -> Iterator[Step]:
        slot = self._prose.get(item)
        if slot is None:
            yield from self._close_prose(ItemStatus.COMPLETED)
            prefix = "msg" if kind is MessageSlot else "rs"
            slot = self._prose[item] = kind(len(self._slots), self._id(prefix, item))
            yield self._open(slot)
        slot.pieces.append(text)
        yield ItemDelta(slot, text)

    def _start(self, change: CallStarted) -> Iterator[Step]:
        yield from self._close_prose(ItemStatus.COMPLETED)
        place, made = len(self._slots), self._id("fc", change.item)
        slot = CallSlot(place, made, change.call_id, change.name, encode(change.args))
        self._calls[change.item] = slot
        yield self._open(slot)

    def _hand_over(self, change: ClientToolCalled) -> Iterator[Step]:
        """A call that the client runs is done when it is made."""
        yield from self._close_prose(ItemStatus.COMPLETED)
        made = self._id("fc", change.item)
        slot = CallSlot(len(self._slots), made, change.call_id, change.name, change.arguments)
        yield self._open(slot)
        slot.status = ItemStatus.COMPLETED
        yield ItemDone(slot)

    def _finish(self, change: CallEnded) -> Iterator[Step]:
        is_whole = change.state is CallState.COMPLETED
        status = ItemStatus.COMPLETED if is_whole else ItemStatus.INCOMPLETE
        call = self._calls.pop(change.item)
        call.status = status
        yield ItemDone(call)
        made = self._id("fco", change.item)
        result = ResultSlot(len(self._slots), made, change.call_id, change.result, status)
        yield self._open(result)
        yield ItemDone(result)

    def _abandon_calls(self) -> Iterator[Step]:
        """A turn ends its calls itself; this holds for a log that lost its tail."""
        for item, call in list(self._calls.items()):
            yield from self._finish(
                CallEnded(item, call.call_id, call.name, CallState.CANCELLED, "", is_error=True, duration=0.0)
            )

    def _close_prose(self, status: ItemStatus) -> Iterator[Step]:
        for slot in self._prose.values():
            slot.status = status
            yield ItemDone(slot)
        self._prose.clear()

    def _open(self, slot: Slot) -> ItemAdded:
        self._slots.append(slot)
        return ItemAdded(slot)

    def _id(self, prefix: str, item: int) -> str:
        return item_id(prefix, self._run_id, item)


def output_items(
    run_id: str, items: Sequence[Item], outcome: Outcome | None = None, form: ResultForm = ResultForm.TEXT
) -> list[OutputItem]:
    """The output that a stored or running turn has, from its items. ``None``: it has not ended."""
    output = Output(run_id)
    output.take_all(_replayed(items))
    if outcome is not None:
        output.take_all([Ended(outcome)])
    return output.items(form)


def _replayed(items: Sequence[Item]) -> Iterator[Change]:
    """Changes that lead to these items again, each call ending where it ended."""
    ends = defaultdict(list)
    for place, call in _ended_calls(items):
        ends[max(call.after, place + 1)].append(_end_of(place, call))
    for place, item in enumerate(items):
        yield _beginning_of(place, item)
        yield from ends[place + 1]


def _ended_calls(items: Sequence[Item]) -> list[tuple[int, CallItem]]:
    """The calls that have a result, in the order of the results."""
    calls = ((place, item) for place, item in enumerate(items) if isinstance(item, CallItem))
    return sorted(((n, call) for n, call in calls if call.state is not CallState.RUNNING), key=_rank)


def _rank(placed: tuple[int, CallItem]) -> int:
    return placed[1].rank


def _beginning_of(place: int, item: Item) -> Change:
    match item:
        case MessageItem(text):
            return TextAdded(place, text)
        case ReasoningItem(text):
            return ReasoningAdded(place, text)
        case ClientCallItem():
            return ClientToolCalled(place, item.call_id, item.name, item.arguments)
        case _:
            return CallStarted(place, item.call_id, item.name, item.args, 0.0)


def _end_of(place: int, call: CallItem) -> CallEnded:
    return CallEnded(place, call.call_id, call.name, call.state, call.result, call.is_error, call.duration)


def _last_status(outcome: Outcome) -> ItemStatus:
    """A text that was still open at the end is whole only if the run is."""
    return ItemStatus.COMPLETED if outcome.status is Status.COMPLETED else ItemStatus.INCOMPLETE
