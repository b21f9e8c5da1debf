"""Follow runs that other nodes execute: their logs, copied from the store as they grow.

Each followed run has a run log of its own in this process, so its readers are subscribers as those
of a local run are, and any number of them cost one copy. One task reads the logs of all followed
runs, with one query at a time: when it is notified that some have grown, and all of them once in a
while, because a notice may get lost.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial

import structlog
import trio
from attrs import define, field

from hermes_trio.core.changes import Ended
from hermes_trio.core.log_codec import DecodeError
from hermes_trio.core.records import LogCursor, LogProgress, RunHeader
from hermes_trio.runs.log import ChangeReader, Changes, RunLog, decode_batches, load_changes
from hermes_trio.stores.base import CorruptRecord, SharedStore, Store, StoreError

log = structlog.get_logger(__name__)

COALESCE_SECONDS = 0.01  # notices that arrive within this time are answered by one query
LOOK_SECONDS = 1.0  # how often the log of every followed run is read without a notice
BLIND_LOOK_SECONDS = 0.1  # the same where the store cannot notify
RETRY_SECONDS = 1.0


@define(eq=False)
class FollowedRun:
    """A run of another node, and the copy of its log."""

    header: RunHeader
    log: RunLog
    readers: int = 0

    @property
    def cursor(self) -> LogCursor:
        """What to read next."""
        return LogCursor(self.header.principal, self.header.run_id, self.log.end)


@define(eq=False)
class LogFollower:
    """Copies the logs of runs that other nodes execute. :meth:`run` is its task.

    Args:
        store: the store that all nodes share.
        shared: the same store.
        on_follow: called with the first reader of a run, and again while it has some.
        on_leave: called when the last reader has left.
    """

    store: Store
    shared: SharedStore
    on_follow: Callable[[RunHeader], None]
    on_leave: Callable[[RunHeader], None]
    _followed: dict[str, FollowedRun] = field(factory=dict)  # by run id
    _due: set[str] = field(factory=set)
    _woken: trio.Event = field(factory=trio.Event)
    _look_at: float = 0.0  # when to read all logs, whatever the notices say

    @property
    def headers(self) -> tuple[RunHeader, ...]:
        """The runs that are followed now."""
        return tuple(followed.header for followed in self._followed.values())

    @asynccontextmanager
    async def follow(self, header: RunHeader, first: int = 0) -> AsyncIterator[ChangeReader]:
        """Read a run from a change to its end. The copy is kept while it has readers."""
        followed = self._followed.get(header.run_id) or self._begin(header)
        followed.readers += 1
        try:
            with followed.log.subscribe(first) as subscriber:
                yield subscriber
        finally:
            followed.readers -= 1
            if not followed.readers and self._followed.get(header.run_id) is followed:
                self._drop(followed)

    def wake(self, run_ids: Iterable[str] | None = None) -> None:
        """Read the logs of some runs soon, or of all."""
        due = self._followed.keys() if run_ids is None else self._followed.keys() & set(run_ids)
        if due:
            self._due |= due
            self._woken.set()

    async def run(self) -> None:
        """Read logs until cancelled."""
        while True:
            with trio.CancelScope(deadline=self._look_at if self._followed else math.inf):
                await self._woken.wait()
                await trio.sleep(COALESCE_SECONDS)  # more notices join the query
            self._woken = trio.Event()
            if trio.current_time() >= self._look_at:
                self._due.update(self._followed)
                seconds = LOOK_SECONDS if self.shared.can_listen else BLIND_LOOK_SECONDS
                self._look_at = trio.current_time() + seconds
            try:
                await self._read_due()
            except Exception as error:
                # A bug of ours must not end the task that reads for all runs.
                expected = isinstance(error, StoreError)
                log.error("logs could not be followed", error=str(error), exc_info=not expected)
                await trio.sleep(RETRY_SECONDS)
                self.wake()

    async def _read_due(self) -> None:
        due = [self._followed[run_id] for run_id in self._due if run_id in self._followed]
        self._due.clear()
        while due:
            found = await self.shared.follow_logs([followed.cursor for followed in due])
            pairs = [*zip(due, found, strict=True)]
            for followed, progress in pairs:
                self._take(followed, progress)
            due = [followed for followed, progress in pairs if progress.has_more]

    def _take(self, followed: FollowedRun, progress: LogProgress) -> None:
        changes = _decode(progress)
        if changes:
            followed.log.append(changes)
            followed.log.mark_saved(followed.log.end)
        is_over = not (changes or progress.is_live)
        if is_over or (changes and isinstance(changes[-1], Ended)):
            followed.log.close()
            if self._followed.get(followed.header.run_id) is followed:
                self._drop(followed)

    def _begin(self, header: RunHeader) -> FollowedRun:
        load = partial(load_changes, self.store, header.principal, header.run_id)
        followed = FollowedRun(header, RunLog(load))
        self._followed[header.run_id] = followed
        self.on_follow(header)
        self.wake([header.run_id])
        return followed

    def _drop(self, followed: FollowedRun) -> None:
        del self._followed[followed.header.run_id]
        self.on_leave(followed.header)


def _decode(progress: LogProgress) -> Changes:
    """Decode what is behind the cursor; of a log that is damaged, what comes before the damage."""
    cursor = progress.cursor
    try:
        return decode_batches(progress.batches, cursor.first)
    except (DecodeError, CorruptRecord) as error:
        log.error("a followed log is damaged", run_id=cursor.run_id, error=str(error))
        return ()
