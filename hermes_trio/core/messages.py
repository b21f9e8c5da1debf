"""What was said: the messages of a conversation as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

# A plain text, or the parts of a multimodal message as JSON objects.
Content = str | tuple[Mapping[str, Any], ...]


@frozen
class ToolCall:
    """A call that an assistant message made."""

    call_id: str
    name: str
    arguments: str  # the JSON text


@frozen
class Message:
    """One message of a transcript, in the roles of the Chat Completions API."""

    role: str
    content: Content
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    reasoning: str = ""


@frozen
class Usage:
    """Token counts of one turn, summed over all its model calls."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Everything that was read and written."""
        return self.input_tokens + self.output_tokens


NO_USAGE = Usage()
