"""Frames of a dialect as values to compare."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from tests.support.sse import parse_sse


@frozen
class Frame:
    """One event: its name ("" for none) and its data, parsed unless it is ``[DONE]``."""

    name: str
    data: Any


def parse(stream: bytes) -> list[Frame]:
    """All frames; comments are left out, and anything else that is no frame fails."""
    frames = parse_sse(stream) if stream else []
    shown = [frame for frame in frames if not frame.comment]
    return [Frame(frame.event, frame.data if frame.is_done else frame.json) for frame in shown]
