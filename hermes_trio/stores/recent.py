"""When runs were last looked at, until the next write takes it along: looking costs no write of its own."""

from __future__ import annotations

from hermes_trio.stores.statements_forget import Look

MAX_LOOKS = 1000


class Recent:
    """The latest look at each of so many runs. Beyond that the oldest are lost, and those runs seem less used."""

    def __init__(self, limit: int = MAX_LOOKS) -> None:
        self._limit = limit
        self._looks: dict[tuple[str, str], Look] = {}

    def note(self, look: Look) -> None:
        """Somebody looked."""
        key = (look.principal, look.run_id)
        self._looks.pop(key, None)  # so that it goes to the end
        self._looks[key] = look
        if len(self._looks) > self._limit:
            del self._looks[next(iter(self._looks))]

    def take(self) -> tuple[Look, ...]:
        """All of it; nothing is left here."""
        looks = tuple(self._looks.values())
        self._looks.clear()
        return looks
