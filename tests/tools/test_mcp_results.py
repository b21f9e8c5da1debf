"""Results of MCP servers as text. The values are fakes, so the package need not be installed."""

from __future__ import annotations

from types import SimpleNamespace as Value
from typing import Any

import pytest

from hermes_trio.tools.base import ToolError
from hermes_trio.tools.mcp import MAX_RESULT_CHARS, result_text


def told(*content: Any, structured: Any = None, is_error: bool = False) -> str:
    return result_text(Value(content=content, structured_content=structured, is_error=is_error))  # type: ignore[arg-type,unused-ignore]


TEXT = Value(type="text", text="hello")


def test_kinds_of_content() -> None:
    assert told(TEXT, TEXT) == "hello\nhello"
    assert told(Value(type="image", mime_type="image/png", data="eA==")) == "[image/png]"
    assert told(Value(type="resource", resource=Value(uri="a://b", text="inner"))) == "inner"
    assert (
        told(Value(type="resource", resource=Value(uri="a://b", blob="eA==", mime_type=None)))
        == "[resource a://b]"
    )
    assert (
        told(Value(type="resource_link", uri="a://b", mime_type="text/css")) == "[text/css a://b]"
    )
    assert told() == "(empty)"


def test_structured_content_stands_in() -> None:
    assert told(structured={"a": 1}) == '{"a":1}'
    assert told(TEXT, structured={"a": 1}) == "hello"


def test_long_results_are_cut() -> None:
    assert (
        told(Value(type="text", text="x" * (MAX_RESULT_CHARS + 5)))
        == "x" * MAX_RESULT_CHARS + "\n[5 more characters]"
    )


def test_errors() -> None:
    with pytest.raises(ToolError, match="hello"):
        told(TEXT, is_error=True)
    with pytest.raises(ToolError, match="without saying why"):
        told(is_error=True)
