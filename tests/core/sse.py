"""Reading SSE bytes the way a careful client does."""

from __future__ import annotations

import json
from typing import Any

from attrs import frozen


@frozen
class Frame:
    """One event: its name ("" for none) and its data, parsed unless it is ``[DONE]``."""

    name: str
    data: Any


def parse(stream: bytes) -> list[Frame]:
    """All frames; comments are left out, and anything else that is no frame fails."""
    text = stream.decode("ascii")
    assert text == "" or text.endswith("\n\n"), "frames are whole"
    return [_frame(block) for block in text.split("\n\n")[:-1] if not block.startswith(":")]


def _frame(block: str) -> Frame:
    lines = block.split("\n")
    name = lines.pop(0).removeprefix("event: ") if lines[0].startswith("event: ") else ""
    [line] = lines
    assert line.startswith("data: ")
    payload = line.removeprefix("data: ")
    return Frame(name, payload if payload == "[DONE]" else json.loads(payload))
