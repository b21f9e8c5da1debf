"""What is known of one request, kept in its ASGI scope: made at the gate, filled in on the way."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from contextvars import ContextVar
from typing import Any

import trio
from attrs import define, field

from hermes_trio.core.scope import scope_of
from hermes_trio.keys import Principal
from hermes_trio.runs.admission import Admission, Slot

KEY = "hermes_trio.visit"
UNKNOWN = Principal("")


@define
class Visit:
    """One request."""

    request_id: str
    headers: dict[str, str]  # by their names in lower case
    principal: Principal = UNKNOWN
    profile: str = ""  # the one that the path begins with, if any
    _slot: Slot | None = None
    _nursery: trio.Nursery | None = None
    _leaving: list[Callable[[], None]] = field(factory=list)

    @property
    def scope(self) -> str:
        """Whose records this request may see and make."""
        return scope_of(self.principal.name, self.profile)

    @property
    def nursery(self) -> trio.Nursery:
        """That of the request: what is started in it ends with it, and is cancelled when the client leaves."""
        assert self._nursery is not None
        return self._nursery

    def begin(self, nursery: trio.Nursery) -> None:
        """The request is about to be answered."""
        self._nursery = nursery

    def when_over(self, action: Callable[[], None]) -> None:
        """Do something when the request ends, however it ends."""
        self._leaving.append(action)

    def take(self, slot: Slot) -> Slot:
        """Remember a reserved slot: it is free again when the request ends before a run took it."""
        self.when_over(slot.forfeit)
        return slot

    def slot(self, admission: Admission) -> Slot:
        """The slot for this request's run, reserved when it is first asked for.

        Raises:
            ApiError: 429 or 503.
        """
        if self._slot is None:
            self._slot = self.take(admission.admit())
        return self._slot

    def leave(self) -> None:
        """The request is over. Its nursery knows the task, which knows us: that is nothing for the collector."""
        self._nursery = None
        actions, self._leaving = self._leaving, []
        for action in actions:
            action()


CURRENT: ContextVar[Visit] = ContextVar("visit")
"""That of the request which is being answered."""


def visit_of(scope: MutableMapping[str, Any]) -> Visit:
    """The visit of a request's scope."""
    visit: Visit = scope[KEY]
    return visit
