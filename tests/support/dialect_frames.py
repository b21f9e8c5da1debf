"""Frames of a dialect as values to compare."""

from __future__ import annotations

import re
from typing import Any

from attrs import frozen

from tests.support.sse import parse_sse

_NUMBER = re.compile(rb'^id: (\d+)$|"sequence_number": (\d+)\}$', re.MULTILINE)


@frozen
class Frame:
    """One event: its name ("" for none) and its data, parsed unless it is ``[DONE]``."""

    name: str
    data: Any


def parse(stream: bytes) -> list[Frame]:
    """Return all frames; skip comments, and fail on anything else."""
    frames = parse_sse(stream) if stream else []
    shown = [frame for frame in frames if not frame.comment]
    return [Frame(frame.event, frame.data if frame.is_done else frame.json) for frame in shown]


def numbered(stream: bytes) -> dict[int, bytes]:
    """Return the frames of a stream by number; fail if a number repeats.

    If the last frame is cut off, it is omitted.
    """
    found: dict[int, bytes] = {}
    for frame in stream.split(b"\n\n")[:-1]:
        if match := _NUMBER.search(frame):
            number = int(match[1] or match[2])
            assert number not in found, number
            found[number] = frame
    return found
