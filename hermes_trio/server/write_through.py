"""Write-through: an ASGI extension that sends a part of a response without a task switch.

A server offers it as ``scope["extensions"]["hermes_trio.write_through"]``. A streaming application may hand over a
part of the body in the same step that produced it; the ordinary `send` costs about ten times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_FRAMING = {b"content-length", b"transfer-encoding"}
_BODILESS = {204, 304}


class WriteThrough:
    """Writes chunks of one response straight to the socket.

    Args:
        try_write: Writes a framed chunk without blocking and returns True if all of it was written.
    """

    __slots__ = ("_is_open", "_try_write")

    def __init__(self, try_write: Callable[[bytes], bool]) -> None:
        self._try_write = try_write
        self._is_open = False

    def try_send(self, data: bytes) -> bool:
        """Write `data` as one HTTP chunk without blocking. Return True if all of it was written.

        After False, `data` may have been written in part, so the caller must send the very same `data` next, alone,
        by an ordinary ``http.response.body`` message; the server skips what the client already has. It is False as
        long as the response is not a started, unfinished chunked one, while another message is being sent, and once
        the client is gone. It never raises.
        """
        if not self._is_open:
            return False
        if not data:
            return True  # an empty chunk would end the response
        return self._try_write(b"%x\r\n%b\r\n" % (len(data), data))

    def response_started(self, message: Mapping[str, Any]) -> None:
        """Note that the head of the response is out; h11 frames its body in chunks if nothing else says its length."""
        names = {bytes(name).lower() for name, _ in message.get("headers", ())}
        self._is_open = not (names & _FRAMING or int(message["status"]) in _BODILESS)

    def response_ended(self) -> None:
        """Note that the last part of the body is about to be sent."""
        self._is_open = False


def offers_write_through(scope: Mapping[str, Any]) -> bool:
    """Whether the response to a request may be sent in chunks to a plain socket."""
    return scope["http_version"] == "1.1" and scope["scheme"] == "http" and scope["method"] in {"GET", "POST"}
