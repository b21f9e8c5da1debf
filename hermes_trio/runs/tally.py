"""What is counted while the server works: plain numbers, for whoever asks how it is doing."""

from __future__ import annotations

from attrs import define


@define
class Tally:
    """Written in the Trio thread only, and never once per token."""

    events: int = 0  # of the runs that have ended
