"""The parts in which a stream is sent: it ends once, whenever its agent leaves."""

from __future__ import annotations

from typing import Any, Self, cast

import pytest

from hermes_trio.web.connection import _send_stream, _sender_of_parts
from hermes_trio.web.stream_body import StreamBody


class Frames:
    """Two frames; the agent leaves before the last one is sent, meanwhile, or not before its stream is closed."""

    def __init__(self, leaves: str) -> None:
        self._leaves = leaves
        self._frames = [b"one", b"two"]
        self.is_over = False
        self.is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.is_closed = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._frames:
            raise StopAsyncIteration
        self.is_over = self._leaves == "before" and len(self._frames) == 1
        return self._frames.pop(0)


@pytest.mark.parametrize("leaves", ["before", "meanwhile", "after"])
async def test_a_stream_ends_once(leaves: str) -> None:
    frames = Frames(leaves)
    parts: list[tuple[bytes, bool]] = []

    async def send(message: dict[str, Any]) -> None:
        parts.append((message["body"], message["more_body"]))
        frames.is_over = frames.is_over or (leaves == "meanwhile" and message["body"] == b"two")

    await _send_stream(send, _sender_of_parts(send), None, cast("StreamBody", frames))
    assert b"".join(body for body, _ in parts) == b"onetwo"
    assert [more for _, more in parts] == [True] * (len(parts) - 1) + [False]
    assert len(parts) == (2 if leaves == "before" else 3)
    assert frames.is_closed
