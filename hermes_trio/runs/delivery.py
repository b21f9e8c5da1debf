"""Write-through: send a token in the step that appends it to the run log.

Without it, a token takes one more task switch: the tracker wakes the SSE writer through its
channel, and the writer sends through the framework. With a thousand busy streams a switch waits for
a pass over every runnable task. While the writer is parked on its channel it has nothing to send,
so its place can be taken: the changes are rendered and handed to the connection at once, if the
server offers the ASGI extension ``hermes_trio.write_through``.
"""

from __future__ import annotations

from collections.abc import Callable

from hermes_trio.runs.log import Changes

EXTENSION = "hermes_trio.write_through"

Render = Callable[[Changes], bytes]
TrySend = Callable[[bytes], bool]


class Delivery:
    """Writes the changes of one stream through to its connection, while the SSE writer waits for some.

    ``try_send`` returns True if it has sent everything. If it returns False, the very same bytes
    must be sent next and alone by the ordinary way; the SSE writer is woken to do that, and finds
    them in ``unsent``.
    """

    def __init__(self, render: Render, try_send: TrySend) -> None:
        self._render, self._try_send = render, try_send
        self.unsent = b""
        self._error: Exception | None = None

    def take(self, changes: Changes) -> bool:
        """Render and send changes. Return False if the SSE writer has to be woken to finish."""
        try:
            self.unsent = self._render(changes)
            if self.unsent and not self._try_send(self.unsent):
                return False
        except Exception as error:  # noqa: BLE001 - it belongs to the SSE writer, not to the agent's side
            self._error = error
            return False
        self.unsent = b""
        return True

    def take_unsent(self) -> bytes:
        """Return what the SSE writer has to send first.

        Raises:
            Exception: whatever rendering or sending raised.
        """
        if self._error is not None:
            raise self._error
        frames, self.unsent = self.unsent, b""
        return frames
