"""The tool calls of a turn."""

from __future__ import annotations

import re

from hermes_trio.core.shorten import MAX_OUTPUT
from hermes_trio.core.tool_calls import Call


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
