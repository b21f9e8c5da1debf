"""The one reducer behind every response: changes in, output items out.

Streams render its steps, batch replies and stored records read its slots, so the three agree on items, order and ids.

* An item has its place in the output from the moment it is first seen.
* A message or reasoning item is done when the next item of the turn begins, or when the turn ends. The result of a call that
  ran meanwhile is no such item: the text goes on after it.
* A call is done when its tool is, and its result follows at once. One that the client runs is done when it is made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from hermes_trio.core.changes import (
    CallEnded,
    CallStarted,
    Change,
    ClientCalled,
    Ended,
    ReasoningAdded,
    TextAdded,
)
from hermes_trio.core.dialects.responses_items import (
    CallSlot,
    ItemStatus,
    MessageSlot,
    OutputItem,
    Prose,
    ReasoningSlot,
    ResultForm,
    ResultSlot,
    Slot,
    item_id,
)
from hermes_trio.core.items import CallItem, ClientCallItem, Item, MessageItem, ReasoningItem
from hermes_trio.core.lifecycle import CallState
from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.core.wire import encode


@frozen
class Opened:
    """An item took its place."""

    slot: Slot


@frozen
class Grew:
    """A message or reasoning item got more text."""

    slot: Prose
    text: str


@frozen
class Closed:
    """An item is done."""

    slot: Slot


Step = Opened | Grew | Closed


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
            case ClientCalled():
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
        yield Grew(slot, text)

    def _start(self, change: CallStarted) -> Iterator[Step]:
        yield from self._close_prose(ItemStatus.COMPLETED)
        place, made = len(self._slots), self._id("fc", change.item)
        slot = CallSlot(place, made, change.call_id, change.name, encode(change.args))
        self._calls[change.item] = slot
        yield self._open(slot)

    def _hand_over(self, change: ClientCalled) -> Iterator[Step]:
        """A call that the client runs is done when it is made."""
        yield from self._close_prose(ItemStatus.COMPLETED)
        made = self._id("fc", change.item)
        slot = CallSlot(len(self._slots), made, change.call_id, change.name, change.arguments)
        yield self._open(slot)
        slot.status = ItemStatus.COMPLETED
        yield Closed(slot)

    def _finish(self, change: CallEnded) -> Iterator[Step]:
        is_whole = change.state is CallState.COMPLETED
        status = ItemStatus.COMPLETED if is_whole else ItemStatus.INCOMPLETE
        call = self._calls.pop(change.item)
        call.status = status
        yield Closed(call)
        made = self._id("fco", change.item)
        result = ResultSlot(len(self._slots), made, change.call_id, change.result, status)
        yield self._open(result)
        yield Closed(result)

    def _abandon_calls(self) -> Iterator[Step]:
        """A turn ends its calls itself; this holds for a log that lost its tail."""
        for item, call in list(self._calls.items()):
            yield from self._finish(
                CallEnded(item, call.call_id, call.name, CallState.CANCELLED, "", is_error=True, duration=0.0)
            )

    def _close_prose(self, status: ItemStatus) -> Iterator[Step]:
        for slot in self._prose.values():
            slot.status = status
            yield Closed(slot)
        self._prose.clear()

    def _open(self, slot: Slot) -> Opened:
        self._slots.append(slot)
        return Opened(slot)

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
            return ClientCalled(place, item.call_id, item.name, item.arguments)
        case _:
            return CallStarted(place, item.call_id, item.name, item.args, 0.0)


def _end_of(place: int, call: CallItem) -> CallEnded:
    return CallEnded(place, call.call_id, call.name, call.state, call.result, call.is_error, call.duration)


def _last_status(outcome: Outcome) -> ItemStatus:
    """A text that was still open at the end is whole only if the run is."""
    return ItemStatus.COMPLETED if outcome.status is Status.COMPLETED else ItemStatus.INCOMPLETE
