"""The output items of a response, and the reducer that builds them from changes.

Streams render the reducer's steps; batch replies and stored records read its slots; so all three
agree on items, order and ids.

* A slot is one position in the output. An item takes its slot when it first appears.
* The id of an item is a hash of the run's id and the item's position in the turn, so that a stream rendered again,
  on any node, has the same ids.
* A message or reasoning item is done when the next item of the turn begins, or when the turn ends. The result of a
  call that ran meanwhile is not such an item: the text continues after it.
* A call is done when its tool is, and its result follows at once. A call that the client runs is done when it is made.
* Where approval requests are items, a call is added when its tool is done: it may turn out to wait for an approval, and
  then the response ends with the request, and the next response has the call.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from operator import itemgetter
from typing import Any

from attrs import define, field, frozen

from hermes_trio.core.changes import (
    ApprovalRequested,
    ApprovalResolved,
    CallEnded,
    CallStarted,
    Change,
    ClientToolCalled,
    Ended,
    ReasoningAdded,
    TextAdded,
)
from hermes_trio.core.dialects.wire import encode
from hermes_trio.core.events import AnsweredBy, Choice
from hermes_trio.core.messages import CallItem, ClientCallItem, Item, MessageItem, ReasoningItem
from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.core.state import CallState

OutputItem = dict[str, Any]


class ItemStatus(StrEnum):
    """The status of an item."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"  # of an ``mcp_call`` only


class ResultForm(StrEnum):
    """The form of a tool result in the output."""

    PARTS = "parts"  # a list of input_text parts, the only form Open WebUI shows; used in streams
    TEXT = "text"  # a string, as in the OpenAI specification


class ToolItems(StrEnum):
    """How a tool call that the server runs appears in the output of a response.

    Agent frameworks run every ``function_call`` that they find, so a call that the server has run
    must not look like one to them. Calls of tools that the client has given are always
    ``function_call`` items.
    """

    # the call and its output as two items, for Open WebUI and clients of hermes-agent
    FUNCTION_CALL = "function_call"
    MCP_CALL = "mcp_call"  # one item for both, which no client takes for its own
    HIDDEN = "hidden"


SERVER_LABEL = "hermes"
"""The name of the server in ``mcp_call`` and ``mcp_approval_request`` items."""


@frozen
class Presentation:
    """The form in which a response shows what the server does, fixed when it starts."""

    tool_items: ToolItems = ToolItems.FUNCTION_CALL
    approval_items: bool = False  # approval requests are ``mcp_approval_request`` items


DEFAULT_PRESENTATION = Presentation()


def item_id(prefix: str, run_id: str, position: int | str) -> str:
    """Derive the id of an item from the run and the item's position."""
    digest = hashlib.sha256(f"{run_id}\n{prefix}\n{position}".encode("utf-8", "surrogatepass"))
    return f"{prefix}_{digest.hexdigest()[:24]}"


def approval_item_id(approval_id: str) -> str:
    """Derive the id of the item of an approval request. It is the same in every response that shows the request."""
    return item_id("mcpr", approval_id, "")


def text_part(text: str) -> OutputItem:
    """Return the content part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def summary_part(text: str) -> OutputItem:
    """Return the content part of a reasoning item."""
    return {"type": "summary_text", "text": text}


def input_text(text: str) -> OutputItem:
    """Return a text part that is input to the model: of a user message or a tool result."""
    return {"type": "input_text", "text": text}


@define(eq=False)
class _TextSlotBase:
    """An item whose text arrives in pieces."""

    index: int
    item_id: str
    pieces: list[str] = field(factory=list)
    status: ItemStatus = ItemStatus.IN_PROGRESS

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self.pieces)


@define(eq=False)
class MessageSlot(_TextSlotBase):
    """Visible text between two tool rounds."""

    def opened(self) -> OutputItem:
        """Return the item as it was added, without text."""
        return self._with([])

    def shown(self, form: ResultForm) -> OutputItem:  # noqa: ARG002 - only results have two forms
        """Return the current item."""
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
class ReasoningSlot(_TextSlotBase):
    """Reasoning between two other items."""

    def opened(self) -> OutputItem:
        """Return the item as it was added, without text."""
        return self._with([])

    def shown(self, form: ResultForm) -> OutputItem:  # noqa: ARG002 - only results have two forms
        """Return the current item."""
        return self._with([summary_part(self.text)])

    def _with(self, summary: list[OutputItem]) -> OutputItem:
        return {
            "id": self.item_id,
            "type": "reasoning",
            "status": str(self.status),
            "summary": summary,
        }


@define(eq=False)
class CallSlot:
    """A tool call.

    It stays in progress until the tool is done, so that clients show it as running.
    """

    index: int
    item_id: str
    call_id: str
    name: str
    arguments: str  # JSON text
    status: ItemStatus = ItemStatus.IN_PROGRESS

    def opened(self) -> OutputItem:
        """Return the item as it was added, without arguments.

        SDK helpers accumulate them from deltas.
        """
        return self._with("")

    def shown(self, form: ResultForm) -> OutputItem:  # noqa: ARG002 - only results have two forms
        """Return the current item."""
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
    """The result of a tool call, never shortened."""

    index: int
    item_id: str
    call_id: str
    output: str
    status: ItemStatus

    def opened(self) -> OutputItem:
        """Return the complete item: existing clients read it when it is added."""
        return self.shown(ResultForm.PARTS)

    def shown(self, form: ResultForm) -> OutputItem:
        """Return the item."""
        output = self.output if form is ResultForm.TEXT else [input_text(self.output)]
        return {
            "id": self.item_id,
            "type": "function_call_output",
            "status": str(self.status),
            "call_id": self.call_id,
            "output": output,
        }


@define(eq=False)
class McpCallSlot:
    """A tool call that the server runs, with its result."""

    index: int
    item_id: str
    call_id: str
    name: str
    arguments: str  # JSON text
    status: ItemStatus = ItemStatus.IN_PROGRESS
    output: str | None = None
    is_error: bool = False
    approval_request_id: str | None = None

    def opened(self) -> OutputItem:
        """Return the item before its arguments, which clients add up from the deltas."""
        return self._with("")

    def shown(self, form: ResultForm) -> OutputItem:  # noqa: ARG002 - the output of this item is always a string
        """Return the item in its current state."""
        return self._with(self.arguments)

    def _with(self, arguments: str) -> OutputItem:
        error = {
            "type": "mcp_tool_execution_error",
            "content": [{"type": "text", "text": self.output}],
        }
        return {
            "id": self.item_id,
            "type": "mcp_call",
            "status": str(self.status),
            "server_label": SERVER_LABEL,
            "name": self.name,
            "arguments": arguments,
            "output": self.output,
            "error": error if self.is_error else None,
            "approval_request_id": self.approval_request_id,
        }


@define(eq=False)
class ApprovalSlot:
    """A request to approve a call, which ends the response. The client answers in its next request."""

    index: int
    item_id: str
    name: str
    arguments: str  # JSON text
    status: ItemStatus = ItemStatus.COMPLETED  # not shown

    def opened(self) -> OutputItem:
        """Return the complete item."""
        return self.shown(ResultForm.PARTS)

    def shown(self, form: ResultForm) -> OutputItem:  # noqa: ARG002 - only results have two forms
        """Return the item."""
        return {
            "id": self.item_id,
            "type": "mcp_approval_request",
            "server_label": SERVER_LABEL,
            "name": self.name,
            "arguments": self.arguments,
        }


TextSlot = MessageSlot | ReasoningSlot
ServerCallSlot = CallSlot | McpCallSlot
Slot = TextSlot | ServerCallSlot | ResultSlot | ApprovalSlot


@frozen
class ItemAdded:
    """An item was added to the output."""

    slot: Slot


@frozen
class ItemDelta:
    """Text was appended to a message or reasoning item."""

    slot: TextSlot
    text: str


@frozen
class ItemDone:
    """An item is done."""

    slot: Slot


Step = ItemAdded | ItemDelta | ItemDone


class Output:
    """The output of one response. Feed it changes; read steps or items."""

    def __init__(self, run_id: str, presentation: Presentation = DEFAULT_PRESENTATION) -> None:
        self._run_id, self._tool_items = run_id, presentation.tool_items
        self._has_approval_items = presentation.approval_items
        self._slots: list[Slot] = []
        self._open_text: dict[
            int, TextSlot
        ] = {}  # the open text item, by position in the turn; at most one
        self._calls: dict[int, ServerCallSlot] = {}  # running calls, by position in the turn
        # With approval items: the running calls, which are not shown yet, by position in the turn;
        # and the latest approval request about each call, by the id of the call.
        self._held: dict[int, CallStarted] = {}
        self._approval_ids: dict[str, str] = {}

    def items(self, form: ResultForm) -> list[OutputItem]:
        """Return all items in their current state."""
        return [slot.shown(form) for slot in self._slots]

    def take(self, change: Change) -> Iterator[Step]:
        """Apply one change and yield its steps.

        The output changes while the iterator is consumed.
        """
        match change:
            case TextAdded(item, text) | ReasoningAdded(item, text):
                yield from self._write(
                    item, text, MessageSlot if type(change) is TextAdded else ReasoningSlot
                )
            case CallStarted():
                yield from self._start(change)
            case CallEnded():
                yield from self._finish(change)
            case ApprovalRequested(approval_id, call_id):
                self._approval_ids[call_id] = approval_id
            case ApprovalResolved(by=AnsweredBy.DEFERRED) if self._has_approval_items:
                yield from self._request_approval(change)
            case ClientToolCalled():
                yield from self._client_call(change)
            case Ended(outcome):
                yield from self._abandon_calls()
                yield from self._close_text(_last_status(outcome))
            case _:
                pass  # the standard has no event for live output of a call

    def append(self, change: TextAdded) -> TextSlot | None:
        """Append text to the open message, a fast path for the most frequent change.

        Returns None, and changes nothing, if the text begins a new item.
        """
        slot = self._open_text.get(change.item)
        if slot is not None:
            slot.pieces.append(change.text)
        return slot

    def take_all(self, changes: Iterable[Change]) -> None:
        """Apply some changes, ignoring their steps."""
        for change in changes:
            for _ in self.take(change):
                pass

    def _write(self, item: int, text: str, kind: type[TextSlot]) -> Iterator[Step]:
        slot = self._open_text.get(item)
        if slot is None:
            yield from self._close_text(ItemStatus.COMPLETED)
            prefix = "msg" if kind is MessageSlot else "rs"
            slot = self._open_text[item] = kind(len(self._slots), self._id(prefix, item))
            yield self._open(slot)
        slot.pieces.append(text)
        yield ItemDelta(slot, text)

    def _start(self, change: CallStarted) -> Iterator[Step]:
        if self._has_approval_items:
            self._held[change.item] = change
        elif self._tool_items is not ToolItems.HIDDEN:
            yield from self._close_text(ItemStatus.COMPLETED)
            yield self._add_call(change)

    def _add_call(self, change: CallStarted) -> ItemAdded:
        is_mcp = self._tool_items is ToolItems.MCP_CALL
        slot = (McpCallSlot if is_mcp else CallSlot)(
            len(self._slots),
            self._id("mcp" if is_mcp else "fc", change.item),
            change.call_id,
            change.name,
            encode(change.args),
        )
        if isinstance(slot, McpCallSlot) and self._has_approval_items:
            approval_id = self._approval_ids.get(change.call_id)
            slot.approval_request_id = approval_id and approval_item_id(approval_id)
        self._calls[change.item] = slot
        return self._open(slot)

    def _request_approval(self, change: ApprovalResolved) -> Iterator[Step]:
        """End the response with a request about a call that has not been shown, and now will not be."""
        yield from self._close_text(ItemStatus.COMPLETED)
        [call] = [call for call in self._held.values() if call.call_id == change.call_id]
        del self._held[call.item]
        item_id = approval_item_id(change.approval_id)
        slot = ApprovalSlot(len(self._slots), item_id, call.name, encode(call.args))
        yield self._open(slot)
        yield ItemDone(slot)

    def _client_call(self, change: ClientToolCalled) -> Iterator[Step]:
        yield from self._close_text(ItemStatus.COMPLETED)
        item_id = self._id("fc", change.item)
        slot = CallSlot(len(self._slots), item_id, change.call_id, change.name, change.arguments)
        yield self._open(slot)
        slot.status = ItemStatus.COMPLETED
        yield ItemDone(slot)

    def _finish(self, change: CallEnded) -> Iterator[Step]:
        if self._has_approval_items and change.item not in self._held:
            return  # it waits for an approval
        held = self._held.pop(change.item, None)
        if self._tool_items is ToolItems.HIDDEN:
            return
        if held is not None:
            yield self._add_call(held)  # text that came meanwhile continues after it
        is_complete = change.state is CallState.COMPLETED
        status = ItemStatus.COMPLETED if is_complete else ItemStatus.INCOMPLETE
        call = self._calls.pop(change.item)
        if isinstance(call, McpCallSlot):
            call.output, call.is_error = change.result, change.is_error
            call.status = ItemStatus.FAILED if is_complete and change.is_error else status
            yield ItemDone(call)
            return
        call.status = status
        yield ItemDone(call)
        item_id = self._id("fco", change.item)
        result = ResultSlot(len(self._slots), item_id, change.call_id, change.result, status)
        yield self._open(result)
        yield ItemDone(result)

    def _abandon_calls(self) -> Iterator[Step]:
        """Close running calls. Turns close theirs; this is for a log that lost its tail."""
        running = {**self._calls, **self._held}
        for item, call in running.items():
            yield from self._finish(
                CallEnded(
                    item,
                    call.call_id,
                    call.name,
                    CallState.CANCELLED,
                    "",
                    is_error=True,
                    duration=0.0,
                )
            )

    def _close_text(self, status: ItemStatus) -> Iterator[Step]:
        for slot in self._open_text.values():
            slot.status = status
            yield ItemDone(slot)
        self._open_text.clear()

    def _open(self, slot: Slot) -> ItemAdded:
        self._slots.append(slot)
        return ItemAdded(slot)

    def _id(self, prefix: str, item: int) -> str:
        return item_id(prefix, self._run_id, item)


def output_items(
    run_id: str,
    items: Sequence[Item],
    outcome: Outcome | None = None,
    form: ResultForm = ResultForm.TEXT,
    presentation: Presentation = DEFAULT_PRESENTATION,
) -> list[OutputItem]:
    """Return the output of a stored or running turn, from its items.

    Without an outcome it has not ended.
    """
    output = Output(run_id, presentation)
    output.take_all(_replayed(items))
    if outcome is not None:
        output.take_all([Ended(outcome)])
    return output.items(form)


def output_item_ids(
    run_id: str, items: Sequence[Item], presentation: Presentation = DEFAULT_PRESENTATION
) -> Iterator[str]:
    """Yield the ids of the output of a turn that has ended, in the order in which its items began."""
    for position, item in enumerate(items):
        match item:
            case CallItem(is_deferred=True):
                yield approval_item_id(item.approval_id)
            case CallItem():
                for prefix in _CALL_PREFIXES[presentation.tool_items]:
                    yield item_id(prefix, run_id, position)
            case _:
                yield item_id(_PREFIXES[type(item)], run_id, position)


_PREFIXES = {MessageItem: "msg", ReasoningItem: "rs", ClientCallItem: "fc"}
_CALL_PREFIXES = {
    ToolItems.FUNCTION_CALL: ("fc", "fco"),
    ToolItems.MCP_CALL: ("mcp",),
    ToolItems.HIDDEN: (),
}


def _replayed(items: Sequence[Item]) -> Iterator[Change]:
    """Yield changes that lead to these items, with each call ending where it ended."""
    ends: defaultdict[int, list[tuple[int, int, CallItem]]] = defaultdict(list)
    for position, item in enumerate(items):
        if isinstance(item, CallItem) and item.state is not CallState.RUNNING:
            ends[max(item.after, position + 1)].append((item.rank, position, item))
    for position, item in enumerate(items):
        yield _beginning_of(position, item)
        for _, start, call in sorted(ends[position + 1], key=itemgetter(0)):
            yield from _end_of(start, call)


def _end_of(position: int, item: CallItem) -> Iterator[Change]:
    """Yield the changes with which a call ended, after what its approval request said."""
    if item.approval_id:
        yield ApprovalRequested(item.approval_id, item.call_id, "", "", (), False, 0.0, 0.0)
    if item.is_deferred:
        by = AnsweredBy.DEFERRED
        yield ApprovalResolved(item.approval_id, item.call_id, Choice.DENY, by, 0.0)
    yield CallEnded(
        position, item.call_id, item.name, item.state, item.result, item.is_error, item.duration
    )


def _beginning_of(position: int, item: Item) -> Change:
    match item:
        case MessageItem(text):
            return TextAdded(position, text)
        case ReasoningItem(text):
            return ReasoningAdded(position, text)
        case ClientCallItem():
            return ClientToolCalled(position, item.call_id, item.name, item.arguments)
        case _:
            return CallStarted(position, item.call_id, item.name, item.args, 0.0)


def _last_status(outcome: Outcome) -> ItemStatus:
    """Return the status of text that was still open at the end: complete only if the run is."""
    return ItemStatus.COMPLETED if outcome.status is Status.COMPLETED else ItemStatus.INCOMPLETE
