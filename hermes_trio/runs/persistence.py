"""Write live runs to the store: their logs in shared transactions, their ends until they are saved.

:class:`LogFlusher` writes the logs of all live runs in one transaction every few hundredths of a
second (group commit). If the process dies, at most the changes of that interval are missing from
the store. :class:`RetryQueue` holds the ends that the store refused, and tries again until it takes
them: a run must not stay in progress because a disk was full for a minute.
:class:`StoreMonitor` notices that the store does not work. :func:`enforce_retention` deletes what
has expired.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import structlog
import trio
from attrs import define

from hermes_trio.core.changes import ApprovalRequested, ApprovalResolved, TextAdded
from hermes_trio.core.log_codec import encode_changes
from hermes_trio.core.records import (
    EndedRun,
    LiveRun,
    LogBatch,
    Ownership,
    PurgeResult,
    Retention,
    RunHeader,
)
from hermes_trio.runs.log import Changes, RunLog, is_long
from hermes_trio.stores.base import Heartbeat, Store, StoreError

log = structlog.get_logger(__name__)

FLUSH_SECONDS = 0.03
RETRY_SECONDS = 1.0
RETENTION_SECONDS = 60.0
HEARTBEAT_SECONDS = 1.0
HEARTBEAT_TIMEOUT = 10.0
REMINDER_SECONDS = 60.0  # between two log lines about a store that does not work
# to save an end; after that the run stays in progress until recovery at the next start
MAX_ATTEMPTS = 600
# queued ends of runs that the store does not know; it could refuse any number of them
MAX_NEW_ENDS = 1_000


def _nothing() -> None:
    pass


class UnsavedLog:
    """A live log, and how much of it the store has."""

    def __init__(
        self,
        header: RunHeader,
        changes: RunLog,
        on_taken_over: Callable[[], None] = _nothing,
    ) -> None:
        self.header, self.changes = header, changes
        self.on_taken_over = on_taken_over  # another node owns the run: nothing more is written
        self.is_final = False  # the end of the run writes the rest
        self._saved = 0
        self._open_approvals: set[str] = set()
        self._is_flushing = False
        self._flushed = trio.Event()

    async def encode(self, more: Changes = ()) -> tuple[LogBatch, ...]:
        """Encode what the store does not have, followed by ``more``, as one batch.

        Empty if there is nothing. Yields to other tasks only while a thread encodes long texts.
        """
        new = self.changes.read_unsaved(self._saved) + more
        if is_long(new):
            with suppress(RuntimeError):  # the process cannot start a thread any more
                return self._batch(new, await trio.to_thread.run_sync(encode_changes, new))
        return self._batch(new, encode_changes(new)) if new else ()

    def encode_nowait(self, more: Changes) -> tuple[LogBatch, ...]:
        """Encode as ``encode`` does, but never yield."""
        new = self.changes.read_unsaved(self._saved) + more
        return self._batch(new, encode_changes(new))

    def _batch(self, changes: Changes, body: bytes) -> tuple[LogBatch, ...]:
        principal, run_id = self.header.principal, self.header.run_id
        is_waiting = self._note_approvals(changes)
        return (LogBatch(principal, run_id, self._saved, body, len(changes), is_waiting),)

    def _note_approvals(self, changes: Changes) -> bool | None:
        """Return whether the run waits after these changes, None if they say nothing of approvals.

        Taking changes again, because they could not be written, makes no difference.
        """
        says = False
        for change in changes:
            if type(change) is TextAdded:  # by far the most frequent change
                continue
            match change:
                case ApprovalRequested(approval_id):
                    self._open_approvals.add(approval_id)
                    says = True
                case ApprovalResolved(approval_id):
                    self._open_approvals.discard(approval_id)
                    says = True
        return bool(self._open_approvals) if says else None

    def begin_flush(self) -> None:
        """Note that a batch is being written."""
        self._is_flushing = True

    def end_flush(self, written: int) -> None:
        """Note that the write has ended, and how many changes the store has gained."""
        self._saved += written
        self.changes.mark_saved(self._saved)
        self._is_flushing = False
        self._flushed.set()
        self._flushed = trio.Event()

    async def wait_flushed(self) -> None:
        """Wait until no batch is being written."""
        while self._is_flushing:
            await self._flushed.wait()


class LogFlusher:
    """Writes the logs of all live runs, in one task and one transaction at a time.

    If ``is_strict``, clients get nothing before the store has it, so logs are written at once, and
    changes that arrive during a write are part of the next one. With an ``ownership``, the store
    refuses changes of a run that another node has taken over.
    """

    def __init__(
        self,
        store: Store,
        interval: float = FLUSH_SECONDS,
        is_strict: bool = False,
        ownership: Ownership | None = None,
    ) -> None:
        self._store, self._interval = store, 0.0 if is_strict else interval
        self._ownership = ownership
        self.is_strict = is_strict
        self._dirty: set[UnsavedLog] = set()
        self._has_dirty = trio.Event()
        self.ends = RetryQueue(store, ownership)

    def mark_dirty(self, unsaved: UnsavedLog) -> None:
        """Schedule a log that has grown."""
        if not unsaved.is_final:
            self._dirty.add(unsaved)
            self._has_dirty.set()

    def discard(self, unsaved: UnsavedLog) -> None:
        """Leave a log to the end of its run, which writes the rest of it."""
        unsaved.is_final = True
        # It refers to the run, which refers to this log: see Tracker.run.
        unsaved.on_taken_over = _nothing
        self._dirty.discard(unsaved)

    async def run(self) -> None:
        """Flush logs and retry ends until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.ends.run)
            while True:
                await self._has_dirty.wait()
                await trio.sleep(self._interval)  # other runs join the transaction
                self._has_dirty = trio.Event()
                try:
                    await self._flush()
                except Exception as error:
                    # A bug of ours must not end the task that writes for all runs. What is unsaved
                    # stays in memory.
                    expected = isinstance(error, StoreError)
                    log.error("logs could not be written", error=str(error), exc_info=not expected)
                    await trio.sleep(RETRY_SECONDS)

    async def _flush(self) -> None:
        group, self._dirty = self._dirty, set()
        for unsaved in group:
            unsaved.begin_flush()
        written: dict[UnsavedLog, int] = {}
        try:
            batches = {unsaved: await self._encode(unsaved) for unsaved in group}
            lost: frozenset[str] = frozenset()
            if encoded := [batch for each in batches.values() for batch in each]:
                lost = await self._store.append_log(encoded, self._ownership)
            for unsaved in group:
                if unsaved.header.run_id in lost:
                    unsaved.on_taken_over()
                    self.discard(unsaved)
                    written[unsaved] = 0
                else:
                    written[unsaved] = sum(batch.count for batch in batches[unsaved])
        finally:
            for unsaved in group:
                unsaved.end_flush(written.get(unsaved, 0))
                if unsaved not in written:
                    self.mark_dirty(unsaved)

    async def _encode(self, unsaved: UnsavedLog) -> tuple[LogBatch, ...]:
        try:
            return await unsaved.encode()
        except Exception:
            # A bug of ours that concerns one run: the others are written all the same.
            log.exception("a log cannot be encoded", run_id=unsaved.header.run_id)
            self.discard(unsaved)
            return ()


@define(eq=False)
class UnsavedEnd:
    """The end of a run as its clients learned it."""

    ended: EndedRun
    tail: tuple[LogBatch, ...]
    items: tuple[Mapping[str, Any], ...]
    is_known: bool = True  # the store has the run in progress, so it must get an end
    attempts: int = 0
    needs_run: bool = False  # save it only if the store turns out to have the run in progress


class RetryQueue:
    """Ends that the store refused, retried once a second.

    Its length is bounded by the number of runs that the store accepted, plus ``MAX_NEW_ENDS`` that it
    does not know.
    """

    def __init__(self, store: Store, ownership: Ownership | None = None) -> None:
        self._store, self._ownership = store, ownership
        self._queue: list[UnsavedEnd] = []
        self._has_items = trio.Event()

    def __len__(self) -> int:
        return len(self._queue)

    def enqueue(self, unsaved: UnsavedEnd) -> None:
        """Save an end as soon as the store accepts it."""
        if not unsaved.is_known and len(self._queue) >= MAX_NEW_ENDS:
            run_id = unsaved.ended.header.run_id
            log.error(
                "a turn is lost because the store has been failing for too long", run_id=run_id
            )
            return
        self._queue.append(unsaved)
        self._has_items.set()

    async def run(self) -> None:
        """Retry until cancelled."""
        while True:
            await self._has_items.wait()
            await trio.sleep(RETRY_SECONDS)
            for unsaved in tuple(self._queue):
                await self._save(unsaved)
            if not self._queue:
                self._has_items = trio.Event()

    async def _save(self, unsaved: UnsavedEnd) -> None:
        run_id = unsaved.ended.header.run_id
        try:
            if unsaved.needs_run and not await self._is_in_progress(unsaved.ended.header):
                self._queue.remove(unsaved)
                return
            is_saved = await self._store.end_run(
                unsaved.ended, unsaved.tail, unsaved.items, self._ownership
            )
        except Exception as error:  # noqa: BLE001 - even a bug of ours concerns one run: the others are saved here too
            unsaved.attempts += 1
            if unsaved.attempts < MAX_ATTEMPTS:
                return
            log.error("gave up saving the end of a run", run_id=run_id, error=repr(error))
        else:
            log.warning(
                "the end of a run was saved late" if is_saved else "run was taken over",
                run_id=run_id,
            )
        self._queue.remove(unsaved)

    async def _is_in_progress(self, header: RunHeader) -> bool:
        return isinstance(await self._store.find_run(header.principal, header.run_id), LiveRun)


class StoreMonitor:
    """Calls the heartbeat of a store once a second, and remembers why it failed.

    While it fails, the server is not ready. The log says so when it begins, once a minute, and when
    it is over.
    """

    def __init__(
        self, store: Store, on_heartbeat: Callable[[float], None] = lambda _: None
    ) -> None:
        self._store = store
        self._on_heartbeat = on_heartbeat  # takes how long one took that succeeded
        self.problem = ""  # why the store does not work; "" if it does
        self._logged_at = 0.0

    async def run(self) -> None:
        """Check the store until cancelled. Returns at once if the store has no heartbeat."""
        store = self._store
        while isinstance(store, Heartbeat):
            self._note(await self._check(store))
            await trio.sleep(HEARTBEAT_SECONDS)

    async def _check(self, store: Heartbeat) -> str:
        began = trio.current_time()
        with trio.move_on_after(HEARTBEAT_TIMEOUT):
            try:
                await store.heartbeat()
            except StoreError as error:
                return str(error)
            except Exception as error:
                # A bug in our code: the server is not ready then, either.
                log.exception("the heartbeat of the store failed")
                return repr(error)
            self._on_heartbeat(trio.current_time() - began)
            return ""
        return f"no answer within {HEARTBEAT_TIMEOUT:g} s"

    def _note(self, problem: str) -> None:
        now = trio.current_time()
        if problem and (not self.problem or now >= self._logged_at + REMINDER_SECONDS):
            log.critical("the store does not work; nothing can be saved", error=problem)
            self._logged_at = now
        if self.problem and not problem:
            log.warning("the store works again")
        self.problem = problem


_NOTHING_PURGED = PurgeResult()


async def enforce_retention(
    store: Store, retention: Retention, now: Callable[[], float] = time.time
) -> None:
    """Delete expired records once a minute until cancelled."""
    while True:
        await trio.sleep(RETENTION_SECONDS)
        try:
            # One call deletes a bounded number of records, so that others can use the store in
            # between.
            while await store.purge(retention, now()) != _NOTHING_PURGED:
                pass
        except StoreError as error:
            log.error("expired records could not be deleted", error=str(error))
        except Exception:
            log.exception("expired records could not be deleted")  # the next attempt may succeed
