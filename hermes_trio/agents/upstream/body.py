"""The bodies of answers, read to their end whatever happens."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx2
import trio

from hermes_trio.agents.upstream.problems import CallFailed, malformed

LINGER = 0.25  # seconds for a stream to end after its last event, so that its connection can be used again


@asynccontextmanager
async def pieces_of(response: httpx2.Response) -> AsyncIterator[AsyncIterator[bytes]]:
    """The bytes as they come.

    The generators inside the library are left unfinished if the reader stops early. Reading on in a cancelled scope
    ends all of them here and now.
    """
    pieces = response.aiter_raw()
    try:
        yield pieces
    finally:
        with trio.CancelScope(shield=True, deadline=-math.inf):
            await _skip(pieces)


async def whole_body(response: httpx2.Response, limit: int) -> bytes:
    """The whole body.

    Raises:
        CallFailed: it is longer than that.
    """
    body = bytearray()
    async with pieces_of(response) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > limit:
                raise CallFailed(malformed(f"the answer has more than {limit} bytes"))
    return bytes(body)


async def run_out(pieces: AsyncIterator[bytes]) -> None:
    """Let the answer end, so that its connection can be used again."""
    with trio.move_on_after(LINGER), suppress(httpx2.HTTPError):
        await _skip(pieces)


async def _skip(pieces: AsyncIterator[bytes]) -> None:
    async for _ in pieces:
        pass
