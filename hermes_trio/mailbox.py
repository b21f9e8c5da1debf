"""What a client says in one request, on its way from the server to the application.

ASGI has one way in, ``receive``, and it takes a task of its own to collect a body and then to wait until the client
leaves. Most requests have come in whole by the time they are looked at: the mailbox hands those over as they are, and
calls whoever wants to know that the client has left. It travels in the ASGI scope; an application that does not know
it uses ``receive``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

KEY = "hermes_trio.mailbox"

BRIEFLY = 0.02
"""How many seconds a request has to follow its head, before it gets a task that collects it."""

Message = Any  # ASGI's, a dictionary


class Mailbox:
    """Bounded: whoever puts has to wait while nobody takes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._messages: list[Message] = []
        self._changed: trio.Event | None = None  # while somebody waits
        self.when_gone: Callable[[], None] | None = (
            None  # called in place of the news that the client has left
        )

    async def put(self, message: Message) -> None:
        """Add a message, and wait for room first; the news that the client has left needs none where it is awaited."""
        if self.when_gone is not None and message["type"] == "http.disconnect":
            self.when_gone()
            return
        while len(self._messages) >= self._size:
            await self._wait()
        self._messages.append(message)
        self._tell()

    async def receive(self) -> Message:
        """The next message, as ASGI has it."""
        if self._messages:
            await trio.lowlevel.checkpoint()
        while not self._messages:
            await self._wait()
        message = self._messages.pop(0)
        self._tell()
        return message

    async def _wait(self) -> None:
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    @property
    def has_all(self) -> bool:
        """Whether the request is in here from its beginning to its end, and the client still there."""
        if not self._messages:
            return False
        last = self._messages[-1]
        return last["type"] == "http.request" and not last.get("more_body", False)

    async def settled(self) -> None:
        """Return when the request is in here as a whole, or never will be."""
        while not (self.has_all or len(self._messages) >= self._size or self._has_end):
            await self._wait()

    @property
    def _has_end(self) -> bool:
        return bool(self._messages) and self._messages[-1]["type"] == "http.disconnect"

    def take_all(self) -> bytes:
        """The body of a request that is in here as a whole."""
        messages, self._messages = self._messages, []
        return b"".join([message.get("body", b"") for message in messages])
