"""Parse what a client received before its connection broke."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from attrs import frozen

DONE = b"data: [DONE]\n\n"
TERMINAL = ("response.completed", "response.incomplete", "response.failed")


@frozen
class Frame:
    """One event as it stood on the wire."""

    raw: bytes

    @property
    def event(self) -> dict[str, Any]:
        """Its data; nothing for the mark of the end."""
        _, _, data = self.raw.partition(b"data: ")
        return {} if self.raw == DONE else dict(json.loads(data))

    @property
    def number(self) -> int:
        """Its sequence number; -1 for the mark of the end."""
        return int(self.event.get("sequence_number", -1))

    @property
    def is_terminal(self) -> bool:
        """Whether it tells how the run ended."""
        return self.event.get("type", "") in TERMINAL


@frozen
class RawResponse:
    """The response to one request; the body may be cut off."""

    status: int
    body: bytes
    is_whole: bool

    def json(self) -> dict[str, Any]:
        """The body of a whole answer that is no stream."""
        return dict(json.loads(self.body)) if self.is_whole and self.status == 200 else {}


def parse_answer(raw: bytes) -> RawResponse | None:
    """Parse the bytes of a connection that was closed after one response.

    Nothing if not even the head came.
    """
    head, mark, rest = raw.partition(b"\r\n\r\n")
    if not mark:
        return None
    status = int(head.split(b" ", 2)[1])
    if b"transfer-encoding: chunked" in head.lower():
        body, is_whole = _join_chunks(rest)
        return RawResponse(status, body, is_whole)
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    return RawResponse(status, rest, len(rest) == length)


def _join_chunks(rest: bytes) -> tuple[bytes, bool]:
    body = b""
    while True:
        size, mark, rest = rest.partition(b"\r\n")
        if not mark:
            return body, False
        if (length := int(size, 16)) == 0:
            return body, True
        body, rest = body + rest[:length], rest[length + 2 :]


def frames_of(body: bytes) -> list[Frame]:
    """The whole events of a body; comments and a last piece that is cut off do not count."""
    pieces = body.split(b"\n\n")[:-1]
    return [Frame(piece + b"\n\n") for piece in pieces if not piece.startswith(b":")]


def text_of(frames: Sequence[Frame]) -> str:
    """All visible text of some events."""
    events = (frame.event for frame in frames)
    return "".join(
        event["delta"] for event in events if event.get("type") == "response.output_text.delta"
    )


def text_of_output(response: dict[str, Any]) -> str:
    """All visible text of a response."""
    messages = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part["text"] for item in messages for part in item["content"])


def plain_output(response: dict[str, Any]) -> list[dict[str, Any]]:
    """The output in the form of batch replies.

    There results are texts, in streams they are lists of parts.
    """
    return [{**item, **_plain_result(item)} for item in response["output"]]


def _plain_result(item: dict[str, Any]) -> dict[str, Any]:
    if item["type"] != "function_call_output" or isinstance(item["output"], str):
        return {}
    return {"output": "".join(part["text"] for part in item["output"])}
