"""Adjacent events are merged."""

from __future__ import annotations

from hermes_trio.core.events import Event, Text, ToolOutput, coalesce


def test_what_one_call_printed_in_a_row_is_one_piece() -> None:
    events: list[Event] = [
        ToolOutput("a", "1"), ToolOutput("a", "2"), ToolOutput("b", "3"), ToolOutput("a", "4"), Text("x"), ToolOutput("a", "5"),
    ]  # fmt: skip
    assert coalesce(events) == [
        ToolOutput("a", "12"), ToolOutput("b", "3"), ToolOutput("a", "4"), Text("x"), ToolOutput("a", "5"),
    ]  # fmt: skip
