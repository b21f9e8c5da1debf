"""After a crash: every run still in progress is rebuilt from its log, through the same turn, and ended."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from hermes_trio.core.changes import Change, Ended
from hermes_trio.core.log_codec import encode_changes
from hermes_trio.core.outcome import Reason
from hermes_trio.core.records import EndedRun, LogBatch, RunHeader
from hermes_trio.core.replay import ReplayedTurn
from hermes_trio.runs.replay import load_changes
from hermes_trio.runs.spec import Items
from hermes_trio.stores.base import CorruptRecord, Store

log = structlog.get_logger(__name__)


async def recover(
    store: Store, owner: str, to_items: Callable[[EndedRun], Items], now: Callable[[], float] = time.time
) -> int:
    """End the runs of processes that died; returns how many there were.

    Raises:
        StoreError: the store fails.
    """
    headers = await store.find_abandoned_runs(owner)
    for header in headers:
        ended, tail = _end(header, await _whole_log(store, header), now())
        await store.end_run(ended, tail, to_items(ended))
        log.warning("ended a run that a dead process left behind", run_id=header.run_id)
    return len(headers)


async def _whole_log(store: Store, header: RunHeader) -> list[Change]:
    """All that was logged; of a log that is damaged, what comes before the damage."""
    changes: list[Change] = []
    try:
        while more := await load_changes(store, header.principal, header.run_id, len(changes)):
            changes += more
    except CorruptRecord as error:
        log.error("a log is damaged, the rest of it is lost", run_id=header.run_id, error=str(error))
    return changes


def _end(header: RunHeader, changes: list[Change], now: float) -> tuple[EndedRun, tuple[LogBatch, ...]]:
    """The run ends now, when it is found: nobody knows when its process died, and its log is kept from its end on."""
    rebuilt = ReplayedTurn(changes)
    *closing, _ = rebuilt.turn.cancel(Reason.PROCESS_DIED, rebuilt.at)
    after = max(rebuilt.at, now - header.stamp.created_at)
    ended = EndedRun(header, rebuilt.turn.items, rebuilt.turn.outcome, after)
    rest = [*closing, Ended(rebuilt.turn.outcome, after)]
    tail = LogBatch(header.principal, header.run_id, len(changes), encode_changes(rest), len(rest))
    return ended, (tail,)
