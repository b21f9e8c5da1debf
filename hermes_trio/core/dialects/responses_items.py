"""The items of a response: how each looks while it is in the making and when it is done.

A slot is one place in the ``output`` of a response. Its id is a hash of the run's id and of the place that the item has in
the turn, so a stream that is rendered again, anywhere, carries the same ids.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any

from attrs import define, field

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
