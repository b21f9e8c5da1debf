"""The header of a run: everything that its streams repeat. With it, rendering is a pure function of the log."""

from __future__ import annotations

from attrs import frozen


@frozen
class Stamp:
    """Given once, when the run is made."""

    run_id: str
    created_at: float  # seconds since the epoch
    model: str  # as the client asked for it

    @property
    def created(self) -> int:
        """The whole seconds that the wire shows."""
        return int(self.created_at)
