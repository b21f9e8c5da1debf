"""Recovery after a crash: rebuild each run that is still in progress from its log, and end it.

The log is replayed through the same turn that the run would have ended by. Clients may have seen
events that the dead process had not stored yet. The events that end the run have higher numbers than
any of those, so that a client can ask for what comes after the last one that it saw.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from hermes_trio.core.changes import Change, Ended, NumbersSkipped
from hermes_trio.core.dialects.wire import MAX_EVENTS_PER_CHANGE
from hermes_trio.core.log_codec import encode_changes
from hermes_trio.core.outcome import Reason
from hermes_trio.core.records import EndedRun, LogBatch, RunHeader
from hermes_trio.core.turn import ReplayedTurn
from hermes_trio.runs.log import MAX_UNSAVED_PUBLISHED, load_changes
from hermes_trio.runs.spec import Items
from hermes_trio.stores.base import CorruptRecord, Store

log = structlog.get_logger(__name__)

SKIPPED = NumbersSkipped(MAX_UNSAVED_PUBLISHED * MAX_EVENTS_PER_CHANGE)


MAX_ERRORS = 3
"""Runs that may fail to be ended before the others are left to the next attempt."""


async def recover(
    store: Store,
    node: str,
    to_items: Callable[[EndedRun], Items],
    now: Callable[[], float] = time.time,
) -> int:
    """Take over the runs of processes that died, and end them. Return how many there were.

    One that cannot be ended does not keep the others from it. The store returns it again the next
    time.

    Raises:
        StoreError: the store fails.
    """
    count = 0
    while taken := await store.take_over_runs(node):
        errors: list[Exception] = []
        for run in taken:
            header = run.header
            try:
                ended, tail = _end(header, await _load_log(store, header), now())
                is_ours = await store.end_run(ended, tail, to_items(ended), run.ownership)
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
                if len(errors) == MAX_ERRORS:
                    break
                continue
            if is_ours:
                count += 1
                log.warning("recovered a run of a dead process", run_id=header.run_id)
            else:
                log.warning("run was taken over", run_id=header.run_id)
        if errors:
            raise errors[0]
    return count


async def _load_log(store: Store, header: RunHeader) -> list[Change]:
    """Load the whole log; of a corrupt log, what comes before the corruption."""
    changes: list[Change] = []
    try:
        while more := await load_changes(store, header.principal, header.run_id, len(changes)):
            changes += more
    except CorruptRecord as error:
        log.error(
            "a stored log is corrupt; the rest of it is lost",
            run_id=header.run_id,
            error=str(error),
        )
    return changes


def _end(
    header: RunHeader, changes: list[Change], now: float
) -> tuple[EndedRun, tuple[LogBatch, ...]]:
    """End a run at the time of its recovery.

    When its process died is unknown, and retention counts from the end.
    """
    rebuilt = ReplayedTurn(changes)
    *closing, _ = rebuilt.turn.cancel(Reason.PROCESS_DIED, rebuilt.at)
    after = max(rebuilt.at, now - header.stamp.created_at)
    ended = EndedRun(header, rebuilt.turn.items, rebuilt.turn.outcome, after)
    rest = [SKIPPED, *closing, Ended(rebuilt.turn.outcome, after)]
    tail = LogBatch(header.principal, header.run_id, len(changes), encode_changes(rest), len(rest))
    return ended, (tail,)
