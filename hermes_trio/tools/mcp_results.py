"""What an MCP server answers, as a text for the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hermes_trio.tools.base import ToolError

if TYPE_CHECKING:
    from mcp.types import CallToolResult

CHARACTERS = 50_000


def result_text(result: CallToolResult) -> str:
    """The text of a result.

    Raises:
        ToolError: with the same, if the tool says that it failed.
    """
    parts = [_part(content) for content in result.content]
    if not parts and result.structured_content is not None:
        parts = [msgspec.json.encode(result.structured_content).decode()]
    text = "\n".join(parts)
    if len(text) > CHARACTERS:
        text = f"{text[:CHARACTERS]}\n[{len(text) - CHARACTERS} more characters]"
    if result.is_error:
        raise ToolError(text or "the tool failed and does not say why")
    return text or "(empty)"


def _part(content: Any) -> str:
    """A text, or a note that stands for what is none."""
    resource = getattr(content, "resource", content)
    if isinstance(text := getattr(resource, "text", None), str):
        return text
    kind = getattr(resource, "mime_type", None) or content.type
    place = getattr(resource, "uri", "")
    return f"[{kind}{f' {place}' if place else ''}]"
