"""After a crash: every run still in progress is rebuilt from its log, through the same turn, and ended."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from hermes_trio.core.changes import Change
from hermes_trio.core.log_codec import encode_changes
from hermes_trio.core.outcome import Reason
from hermes_trio.core.record import EndedRun, LogBatch, RunHeader
from hermes_trio.core.replay import Rebuilt
from hermes_trio.runs.replay import load_changes
from hermes_trio.runs.run import Items
from hermes_trio.stores.contract import Store

log = structlog.get_logger(__name__)


async def recover(store: Store, owner: str, to_items: Callable[[EndedRun], Items]) -> int:
    """End the runs of processes that died; returns how many there were.

    Raises:
        StoreError: the store fails, or a log is damaged.
    """
    headers = await store.abandoned_runs(owner)
    for header in headers:
        ended, tail = _end(header, await _whole_log(store, header))
        await store.end_run(ended, tail, to_items(ended))
        log.warning("ended a run that a dead process left behind", run_id=header.run_id)
    return len(headers)


async def _whole_log(store: Store, header: RunHeader) -> list[Change]:
    changes: list[Change] = []
    while more := await load_changes(store, header.principal, header.run_id, len(changes)):
        changes += more
    return changes


def _end(header: RunHeader, changes: list[Change]) -> tuple[EndedRun, tuple[LogBatch, ...]]:
    rebuilt = Rebuilt(changes)
    closing = rebuilt.turn.cut(Reason.PROCESS_DIED, rebuilt.at)
    ended = EndedRun(header, rebuilt.turn.items, rebuilt.turn.outcome, rebuilt.at)
    tail = LogBatch(header.principal, header.run_id, len(changes), encode_changes(closing), len(closing))
    return ended, (tail,)
