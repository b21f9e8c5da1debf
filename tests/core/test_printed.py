"""What a tool printed: whole while it is short, its two ends when it is not."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.core.events import Event, Text, ToolOutput, coalesce
from hermes_trio.core.shorten import MAX_OUTPUT, HeadTailBuffer
from hermes_trio.core.tool_calls import Call


@given(st.lists(st.text("abc", max_size=30), max_size=20), st.integers(0, 100))
def test_the_two_ends_are_kept(pieces: list[str], limit: int) -> None:
    printed, whole = HeadTailBuffer(limit), "".join(pieces)
    for piece in pieces:
        printed.add(piece)
    if len(whole) <= limit:
        assert printed.text == whole
    else:
        head, tail = whole[: limit // 2], whole[len(whole) - (limit - limit // 2) :]
        assert printed.text == f"{head}\n[... {len(whole) - limit} characters left out ...]\n{tail}"


def test_a_call_that_prints_for_hours_takes_bounded_memory() -> None:
    call = Call(0, "c", "terminal", {}, 0.0, reports_end=True)
    call.start()
    for _ in range(1_000):
        call.output.add("x" * 100_000)
    call.abandon(1.0)
    assert MAX_OUTPUT <= len(call.result) < MAX_OUTPUT + 100
    left_out = re.search(r"(\d+) characters left out", call.result)
    assert left_out is not None
    assert int(left_out[1]) == 100_000_000 - MAX_OUTPUT


def test_what_one_call_printed_in_a_row_is_one_piece() -> None:
    events: list[Event] = [
        ToolOutput("a", "1"), ToolOutput("a", "2"), ToolOutput("b", "3"), ToolOutput("a", "4"), Text("x"), ToolOutput("a", "5"),
    ]  # fmt: skip
    assert coalesce(events) == [
        ToolOutput("a", "12"), ToolOutput("b", "3"), ToolOutput("a", "4"), Text("x"), ToolOutput("a", "5"),
    ]  # fmt: skip
