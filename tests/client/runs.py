"""Runs for clients: made of scripts by the server's own code, so that a client is held against the real events."""

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
    """What a turn makes of a script; it is cut at the end."""
    return played(script, reason)[1]


def data_of(stream: bytes) -> list[str]:
    """The data of all frames."""
    return SseParser().feed(stream)
