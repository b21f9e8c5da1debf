"""Writes the logs of all live runs to the store: one transaction for all of them, every few hundredths of a second.

A run that has something new wakes the flusher; it waits a moment for company and writes everything that waits. What a
process that dies had told its clients in that moment is all that can be missing from the store.
"""

from __future__ import annotations

from collections.abc import Iterator

import structlog
import trio

from hermes_trio.core.log_codec import encode_changes
from hermes_trio.core.records import LogBatch, RunHeader
from hermes_trio.runs.log import Changes, RunLog
from hermes_trio.runs.unsaved import UnsavedEnds
from hermes_trio.stores.base import Store, StoreError

log = structlog.get_logger(__name__)

INTERVAL = 0.03
RETRY_AFTER = 1.0


class KeptLog:
    """A live log and how much of it is in the store."""

    def __init__(self, header: RunHeader, changes: RunLog) -> None:
        self.header, self.changes = header, changes
        self.is_sealed = False  # its run's end writes the rest
        self._saved = 0
        self._is_flushing = False
        self._flushed = trio.Event()

    def batch(self, more: Changes = ()) -> tuple[LogBatch, ...]:
        """What is not in the store yet, and more that is not in the log yet; one batch or none."""
        new = self.changes.read(self._saved) + more
        if not new:
            return ()
        body = encode_changes(new)
        return (LogBatch(self.header.principal, self.header.run_id, self._saved, body, len(new)),)

    def begin(self) -> None:
        """A write is under way."""
        self._is_flushing = True

    def end(self, written: int) -> None:
        """The write is over; so many changes are safe now."""
        self._saved += written
        self.changes.mark_saved(self._saved)
        self._is_flushing = False
        self._flushed.set()
        self._flushed = trio.Event()

    async def settled(self) -> None:
        """Return when no write is under way."""
        while self._is_flushing:
            await self._flushed.wait()


class Flusher:
    """The one task that writes logs."""

    def __init__(self, store: Store, interval: float = INTERVAL) -> None:
        self._store, self._interval = store, interval
        self._dirty: set[KeptLog] = set()
        self.ends = UnsavedEnds(store)
        self._wanted = trio.Event()

    def want(self, kept: KeptLog) -> None:
        """A log has something new."""
        if not kept.is_sealed:
            self._dirty.add(kept)
            self._wanted.set()

    def drop(self, kept: KeptLog) -> None:
        """A log is written by its run's end from now on."""
        kept.is_sealed = True
        self._dirty.discard(kept)

    async def run(self) -> None:
        """Write until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.ends.run)
            while True:
                await self._wanted.wait()
                await trio.sleep(self._interval)
                self._wanted = trio.Event()
                await self._try_flush()

    async def _try_flush(self) -> None:
        try:
            await self._flush()
        except StoreError as error:
            log.error("logs could not be written", error=str(error))
            await trio.sleep(RETRY_AFTER)
        except Exception:
            # Our own mistake. It must not end the task that writes for everybody; what is unsaved stays in memory.
            log.exception("logs could not be written")
            await trio.sleep(RETRY_AFTER)

    async def _flush(self) -> None:
        group = list(self._batches())
        self._dirty.clear()
        if not group:
            return
        for kept, _ in group:
            kept.begin()
        written = False
        try:
            await self._store.append_log([batch for _, batches in group for batch in batches])
            written = True
        finally:
            for kept, batches in group:
                kept.end(sum(batch.count for batch in batches) if written else 0)
                if not written:
                    self.want(kept)

    def _batches(self) -> Iterator[tuple[KeptLog, tuple[LogBatch, ...]]]:
        for kept in tuple(self._dirty):
            try:
                yield kept, kept.batch()
            except Exception:
                # Our own mistake, and of one run: the others must not suffer.
                log.exception("a log cannot be written", run_id=kept.header.run_id)
                self.drop(kept)
