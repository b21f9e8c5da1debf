"""A strict parser of server-sent events: anything that the dialects do not write is an error."""

from __future__ import annotations

import json
from typing import Any

from attrs import frozen


@frozen
class Frame:
    """One server-sent event, or a comment."""

    data: str = ""
    event: str = ""
    comment: str = ""

    @property
    def json(self) -> Any:
        """The parsed data line."""
        return json.loads(self.data)

    @property
    def is_done(self) -> bool:
        return self.data == "[DONE]"


def parse_frame(block: str) -> Frame:
    """Parse a block of lines: no ``id``, no ``retry``, one line of data."""
    fields: dict[str, str] = {}
    for line in block.split("\n"):
        name, _, value = line.partition(": ")
        assert name in {"", "event", "data"}, f"unexpected line: {line!r}"
        assert name not in fields, f"two lines for {name!r}: {block!r}"
        fields[name] = value
    return Frame(fields.get("data", ""), fields.get("event", ""), fields.get("", ""))


def parse_sse(body: bytes) -> list[Frame]:
    """Parse all events of a whole stream."""
    text = body.decode("ascii")
    assert text.endswith("\n\n"), "a stream ends with a whole event"
    return [parse_frame(block) for block in text[:-2].split("\n\n")]
