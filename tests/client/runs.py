"""Runs for tests of clients, rendered from scripts by the server's own code."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_trio.client.events import SseParser
from hermes_trio.core.changes import Change
from hermes_trio.core.events import Event
from hermes_trio.core.outcome import Reason
from hermes_trio.core.records import RunHeader, Stamp
from tests.support.turn_rules import played

RUN_ID = "run_1"
HEADER = RunHeader(
    principal="p", stamp=Stamp(RUN_ID, 1000.0, "m"), kind="runs", session_id="s", messages=()
)


def changes_of(script: Iterable[Event], reason: Reason = Reason.STOP_REQUESTED) -> list[Change]:
    """Return the changes of a scripted turn, which is cut off at its end."""
    return played(script, reason)[1]


def data_of(stream: bytes) -> list[str]:
    """The data of all frames."""
    return SseParser().feed(stream)
