"""What a disconnect does to a run.

The policy, and the count of connected clients that it depends on.
"""

from __future__ import annotations

import math

import trio
from attrs import frozen

from hermes_trio.core.errors import bad_request

HEADER = "X-Hermes-On-Disconnect"


@frozen
class DisconnectPolicy:
    """How long a run continues without a client: not at all, for some seconds, or to its end."""

    grace_seconds: float

    @property
    def is_detached(self) -> bool:
        """Whether the run continues to its end without any client."""
        return self.grace_seconds == math.inf


INTERRUPT = DisconnectPolicy(0.0)
DETACH = DisconnectPolicy(math.inf)


def parse_policy(text: str, param: str = HEADER) -> DisconnectPolicy:
    """Parse ``interrupt``, ``detach`` or ``grace:SECONDS``.

    Raises:
        ApiError: 400.
    """
    word, _, seconds = text.strip().lower().partition(":")
    if word == "interrupt" and not seconds:
        return INTERRUPT
    if word == "detach" and not seconds:
        return DETACH
    if word == "grace" and seconds.replace(".", "", 1).isdecimal() and float(seconds) <= 86_400:
        return DisconnectPolicy(float(seconds))
    raise bad_request(
        "Use 'interrupt', 'grace:SECONDS' or 'detach'.", param, "invalid_on_disconnect"
    )


class ClientHandle:
    """One connected client of a run. Disconnecting twice is harmless."""

    def __init__(self, clients: ConnectedClients) -> None:
        self._clients = clients
        self._is_connected = True

    def disconnect(self) -> None:
        """Note that the client has left."""
        if self._is_connected:
            self._is_connected = False
            self._clients.add(-1)


class ConnectedClients:
    """Counts the clients of a run, and tells when its disconnect policy has been exhausted.

    Create it in a Trio task.
    """

    def __init__(self, policy: DisconnectPolicy) -> None:
        self._policy = policy
        self._count = 0
        self._changed = trio.Event()

    def connect(self) -> ClientHandle:
        """Count one more client until its handle is disconnected."""
        self.add(1)
        return ClientHandle(self)

    def add(self, clients: int) -> None:
        """Change the count. For :class:`ClientHandle`."""
        self._count += clients
        self._changed.set()
        self._changed = trio.Event()

    async def wait_abandoned(self) -> None:
        """Wait until the run has been without a client for as long as the policy allows."""
        while True:
            while self._count > 0:
                await self._changed.wait()
            with trio.move_on_after(self._policy.grace_seconds):
                while self._count == 0:
                    await self._changed.wait()
                continue
            return
