"""Who listens to a run, and what happens when nobody does."""

from __future__ import annotations

import math

import trio
from attrs import frozen

from hermes_trio.core.errors import bad_request

HEADER = "X-Hermes-On-Disconnect"


@frozen
class DisconnectPolicy:
    """How long a run goes on without a listener: not at all, for some seconds, or to its end."""

    grace_seconds: float

    @property
    def is_detached(self) -> bool:
        """Whether the run does not care."""
        return self.grace_seconds == math.inf


INTERRUPT = DisconnectPolicy(0.0)
DETACH = DisconnectPolicy(math.inf)


def parse_policy(text: str, param: str = HEADER) -> DisconnectPolicy:
    """Read ``interrupt``, ``detach`` or ``grace:SECONDS``.

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
    raise bad_request("Use 'interrupt', 'grace:SECONDS' or 'detach'.", param, "invalid_on_disconnect")


class Ticket:
    """The presence of one listener, given back once."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self._is_valid = True

    def give_back(self) -> None:
        """The listener left."""
        if self._is_valid:
            self._is_valid = False
            self._presence.leave()


class Presence:
    """Counts the listeners of a run."""

    def __init__(self, policy: DisconnectPolicy) -> None:
        self._policy = policy
        self._count = 0
        self._changed = trio.Event()

    def join(self) -> Ticket:
        """Somebody listens."""
        self._count += 1
        self._notify()
        return Ticket(self)

    def leave(self) -> None:
        """Somebody left."""
        self._count -= 1
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def wait_abandoned(self) -> None:
        """Return when nobody has listened for as long as the policy allows."""
        while True:
            await self._until(listened=False)
            with trio.move_on_after(self._policy.grace_seconds):
                await self._until(listened=True)
                continue
            return

    async def _until(self, listened: bool) -> None:
        while (self._count > 0) is not listened:
            await self._changed.wait()
