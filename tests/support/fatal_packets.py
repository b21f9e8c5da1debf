"""The six packets that end an unguarded Trio worker of Hypercorn. None needs a key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import h2.events
import trio

from tests.support.raw_http import UPGRADE, H2Client, connect, h2_client, read_to_end

Trigger = Callable[[int], Awaitable[None]]


async def _drain(client: H2Client) -> None:
    """Read until the server has closed, or has answered a last, well-formed request on this connection."""
    try:
        number = await client.request()
        while client.find(h2.events.StreamEnded, number) is None:
            if not await client.receive():
                return
    except trio.BrokenResourceError:
        return


async def h2_late_data(port: int) -> None:
    """DATA after the server has already ended the stream.

    Ordinary client behaviour on an early 401.
    """
    async with h2_client(port) as client:
        number = await client.request(b"/early", b"POST", end=False)
        await client.until(h2.events.StreamEnded, number)
        client.h2.send_data(number, b"late", end_stream=True)
        await client.flush()
        await _drain(client)


async def h2_bad_path(port: int) -> None:
    """A path that is not ASCII."""
    async with h2_client(port) as client:
        await client.request("/é".encode())
        await _drain(client)


async def h2_bad_method(port: int) -> None:
    """A method that is not ASCII."""
    async with h2_client(port) as client:
        await client.request(b"/", "GÉT".encode())
        await _drain(client)


async def h2_connect(port: int) -> None:
    """CONNECT has no path."""
    async with h2_client(port) as client:
        await client.send_head([(b":method", b"CONNECT"), (b":authority", b"test:1")], end=False)
        await _drain(client)


async def _send_and_read(port: int, data: bytes) -> None:
    async with await connect(port) as stream:
        await stream.send_all(data)
        await read_to_end(stream)


async def ws_trailing_byte(port: int) -> None:
    """Send a WebSocket upgrade and one more byte."""
    await _send_and_read(port, UPGRADE + b"x")


async def ws_garbage(port: int) -> None:
    """Send a WebSocket upgrade, then bytes that are not a WebSocket frame."""
    await _send_and_read(port, UPGRADE + b"\x00\xff\xfe garbage\r\n\r\n" * 20)


TRIGGERS: tuple[Trigger, ...] = (
    h2_late_data,
    h2_bad_path,
    h2_bad_method,
    h2_connect,
    ws_trailing_byte,
    ws_garbage,
)
